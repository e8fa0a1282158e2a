"""Minima of sums over a few adjacent columns, held in vector registers: the innermost loop of min-plus products.

LLVM's vectoriser keeps the minima in memory, reads and writes them every few terms, and is at its best for rows of
hundreds of columns; the rows of a contraction have 16 to 32. Written in vectors, the loop is two to four times as fast.
Sums are added in the same order, so results are the same to the last bit. Vectors of four numbers are what AVX2 has;
LLVM splits or joins them for other processors.

A kernel that calls one of these is compiled anew when its own file changes, not when this one does.
"""

from importlib import import_module
from types import FunctionType
from typing import Any, cast

from alpa_explore.numerics.arrays import Floats
from alpa_explore.numerics.compiled import Kernel

LANES = 4
"""Numbers in a vector."""


class LeastSums(Kernel[..., None]):
    """row[j] = min over k of row[j] and bases[k] + tables[0][at[0] + k · steps[0] + j] + …, for so many columns j from
    `first` on.

    Arguments (row, first, bases, tables, at, steps); the last three are tuples of one length. Arrays are contiguous,
    and nothing is checked. Only for calls by other kernels.
    """

    def __init__(self, columns: int) -> None:
        assert columns % LANES == 0, "whole vectors"
        self.columns = columns
        super().__init__(cast(FunctionType, self._by_python), None, {})

    @property
    def interpreted(self) -> Any:
        """The loop by Python."""
        return self._by_python

    def _by_python(
        self,
        row: Floats,
        first: int,
        bases: Floats,
        tables: tuple[Floats, ...],
        at: tuple[int, ...],
        steps: tuple[int, ...],
    ) -> None:
        for j in range(first, first + self.columns):
            for k, base in enumerate(bases):
                total = base
                for table, begin, step in zip(tables, at, steps, strict=True):
                    total = total + table[begin + k * step + j]
                row[j] = min(row[j], total)

    def _make_dispatcher(self) -> Any:
        from numba.core import types
        from numba.extending import intrinsic

        def typed(_typing: object, row: Any, first: Any, bases: Any, tables: Any, at: Any, steps: Any) -> Any:
            return types.void(row, first, bases, tables, at, steps), self._generate

        return intrinsic(typed)

    def _generate(self, context: Any, builder: Any, signature: Any, args: Any) -> Any:
        """The loop over k in LLVM's language."""
        ir: Any = import_module("llvmlite.ir")
        cgutils: Any = import_module("numba.core.cgutils")
        vector, integer = ir.VectorType(ir.DoubleType(), LANES), ir.IntType(64)
        kinds, parts = signature.args, range(0, self.columns, LANES)

        def array(kind: Any, value: Any) -> Any:
            return context.make_array(kind)(context, builder, value)

        def pointer(data: Any, place: Any) -> Any:
            return builder.bitcast(builder.gep(data, [place]), vector.as_pointer())

        row, bases = array(kinds[0], args[0]), array(kinds[2], args[2])
        tables, at, steps = ([builder.extract_value(args[i], n) for n in range(len(kinds[3]))] for i in (3, 4, 5))
        data = [array(kind, table).data for kind, table in zip(kinds[3], tables, strict=True)]
        begins = [builder.add(begin, args[1]) for begin in at]
        in_row = [pointer(row.data, builder.add(args[1], integer(part))) for part in parts]
        least = [cgutils.alloca_once(builder, vector) for _ in parts]  # LLVM keeps them in registers
        for place, minimum in zip(in_row, least, strict=True):
            builder.store(builder.load(place, align=8), minimum)
        (count,) = cgutils.unpack_tuple(builder, bases.shape, 1)
        with cgutils.for_range(builder, count) as loop:
            base = builder.load(builder.gep(bases.data, [loop.index]))
            alone = builder.insert_element(ir.Constant(vector, ir.Undefined), base, ir.IntType(32)(0))
            everywhere = ir.Constant(ir.VectorType(ir.IntType(32), LANES), [0] * LANES)
            spread = builder.shuffle_vector(alone, ir.Constant(vector, ir.Undefined), everywhere)
            rows = [builder.add(b, builder.mul(loop.index, s)) for b, s in zip(begins, steps, strict=True)]
            for part, minimum in zip(parts, least, strict=True):
                total = spread
                for table, place in zip(data, rows, strict=True):
                    entries = builder.load(pointer(table, builder.add(place, integer(part))), align=8)
                    total = builder.fadd(total, entries)
                before = builder.load(minimum)
                smaller = builder.fcmp_ordered("<", total, before, flags=("nnan", "nsz"))
                builder.store(builder.select(smaller, total, before), minimum)
        for place, minimum in zip(in_row, least, strict=True):
            builder.store(builder.load(minimum), place, align=8)
        return context.get_dummy_value()
