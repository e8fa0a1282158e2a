"""Checks of values in a model that only refuse bad inputs: while it is traced they are taken as passed.

These are `if <test of a tensor>: raise …`, `assert <test of a tensor>` and torch's own checks (`torch._check_with`, …).
What a model does with inputs that it accepts does not depend on them.

Values that a model makes from constants alone are known while it is traced, though all tensors are fake. So is whether
all or any elements of a tensor are finite, where a branch asks (`if not x.isfinite().all(): x = x.clamp(…)`): they are.

A model may read such a value to take a short cut. Those of Hugging Face compare the positions 0, 1, 2, … with each
other, and leave the causal mask to the attention kernel when they find a single sequence. Without the value the model
is traced as for torch.compile and builds a mask of all scores.
"""

import ast
import linecache
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from types import FrameType
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import DataDependentOutputException, DynamicOutputShapeException
from torch._subclasses.functional_tensor import FunctionalTensor
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode
from torch.nn.modules import transformer
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils._pytree import tree_map_only
from torch.utils.weak import WeakTensorKeyDictionary

from alpa_explore.tracing.symbols import tensors_in

VALUE_ERRORS = (DataDependentOutputException, DynamicOutputShapeException, GuardOnDataDependentSymNode)
"""The exceptions of torch when a model reads the value of a traced tensor."""
_TORCH = os.path.dirname(torch.__file__) + os.sep
_READS = frozenset({"__bool__", "item"})


class Compared:
    """A number of which no more is known than how it compares in a check."""

    def __init__(self, wanted: bool) -> None:
        self._wanted = wanted

    def _compare(self, _: object) -> bool:
        return self._wanted

    __lt__ = __le__ = __gt__ = __ge__ = _compare
    __eq__ = __ne__ = _compare
    __hash__ = None  # type: ignore[assignment]  # it is no key of a dict


def outcome(function: Any, args: tuple[Any, ...], frame_of: Callable[[], FrameType | None]) -> bool | Compared | None:
    """What a read of a tensor gives where the model's line, which runs in `frame_of()`, only checks inputs: the truth
    value that passes, or what compares as it must for a number that is compared; None where it does more."""
    name = getattr(function, "__name__", "")
    if name not in _READS or not args or not isinstance(args[0], Tensor):
        return None
    frame = frame_of()
    if frame is None:
        return None
    if name == "__bool__" or args[0].dtype == torch.bool:
        return _needed(frame)
    wanted = _needed(frame, compared=True)
    return None if wanted is None else Compared(wanted)


def _needed(frame: FrameType, *, compared: bool = False) -> bool | None:
    lines = linecache.getlines(frame.f_code.co_filename, frame.f_globals)
    position = _position(frame)
    if not lines or position is None:
        return None
    try:
        tree = ast.parse("".join(lines))
    except SyntaxError:
        return None
    for node in ast.walk(tree):
        if compared and not (isinstance(node, ast.Assert | ast.If) and _compares(node.test, position)):
            continue
        if isinstance(node, ast.Assert) and _within(position, node):  # pytest moves the test to the statement's start
            return _value(node.test, position, wanted=True)
        if isinstance(node, ast.If) and isinstance(node.body[0], ast.Raise):
            if _within(position, node.test):
                return _value(node.test, position, wanted=False)
            # Python places the jump of `if not …`, and of any `elif …`, at the statement.
            if position == (node.lineno, node.col_offset) and not isinstance(node.test, ast.BoolOp):
                return isinstance(node.test, ast.UnaryOp)
    return None


def _value(test: ast.expr, position: tuple[int, int], *, wanted: bool) -> bool:
    """What the part of `test` at `position` gives where the whole gives `wanted`: the same in `and` and `or`, whose
    every part may give it, the opposite in `not`."""
    inner: Sequence[ast.expr] = test.values if isinstance(test, ast.BoolOp) else ()
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        inner, wanted = (test.operand,), not wanted
    return next((_value(part, position, wanted=wanted) for part in inner if _within(position, part)), wanted)


def _compares(test: ast.expr, position: tuple[int, int]) -> bool:
    """Whether `x.item()` at `position` is one side of a comparison in `test`."""
    sides = (
        side for node in ast.walk(test) if isinstance(node, ast.Compare) for side in (node.left, *node.comparators)
    )
    return any(
        isinstance(side, ast.Call)
        and isinstance(side.func, ast.Attribute)
        and side.func.attr == "item"
        and position == (side.lineno, side.col_offset)
        for side in sides
    )


def _position(frame: FrameType) -> tuple[int, int] | None:
    """(line, column) of the expression that runs in `frame`."""
    positions = list(frame.f_code.co_positions())
    line, _, column, _ = positions[frame.f_lasti // 2]
    return None if line is None or column is None else (line, column)


def _within(position: tuple[int, int], node: ast.expr | ast.stmt) -> bool:
    end = (node.end_lineno or node.lineno, node.end_col_offset or 0)
    return (node.lineno, node.col_offset) <= position < end


@contextmanager
def passed_checks() -> Iterator[None]:
    """While this is entered, torch's own checks of tensors pass, and a mask is taken as causal where that is known."""
    with ExitStack() as stack:
        for tensors in (Tensor, FunctionalTensor):
            stack.enter_context(patch.object(tensors, "__bool__", _unless_checked(tensors.__bool__)))
        stack.enter_context(patch.object(transformer, "_detect_is_causal_mask", _if_known(transformer)))
        for name in ("_check_tensor_all_with", "_check_tensor_all", "_check_with", "_check"):
            stack.enter_context(patch.object(torch, name, _unless_tensor(getattr(torch, name))))
        yield


def _if_known(module: Any) -> Any:
    """torch's own function, and for a mask of unknown values what it says where the mask is not causal: that only
    chooses a faster kernel."""
    kept = module._detect_is_causal_mask

    def detect(mask: Tensor | None, is_causal: bool | None = None, size: int | None = None) -> bool:
        try:
            return bool(kept(mask, is_causal, size))
        except VALUE_ERRORS:
            return is_causal is True

    return detect


def _unless_checked(kept: Any) -> Any:
    """Whether a tensor is true, and what passes where a function of torch (a loss, a distribution) only checks it."""

    def read(tensor: Tensor) -> bool:
        frame = sys._getframe(1)
        passed = _needed(frame) if frame.f_code.co_filename.startswith(_TORCH) else None
        return bool(kept(tensor)) if passed is None else passed

    return read


def _unless_tensor(kept: Any) -> Any:
    def check(*args: Any, **kwargs: Any) -> None:
        if not any(isinstance(a, Tensor) for a in (*args, *kwargs.values())):
            kept(*args, **kwargs)

    return check


MOST_ELEMENTS = 1 << 20
"""Values of larger tensors are not kept: masks of all scores would take gigabytes."""

_MADE = frozenset({"arange", "eye", "full", "ones", "tensor", "zeros"})
_FILLED = frozenset({"full_like", "new_full", "new_ones", "new_zeros", "ones_like", "zeros_like"})
_FOLLOWED = frozenset(
    """
    add all any bool cat clamp clone contiguous cumsum diff eq expand flatten float ge gt int le logical_and
    logical_not logical_or long lt mul ne neg pad repeat reshape select squeeze stack sub sum to tril triu unsqueeze
    view where __add__ __and__ __eq__ __ge__ __getitem__ __gt__ __invert__ __le__ __lt__ __mul__ __ne__ __neg__
    __or__ __radd__ __rmul__ __rsub__ __sub__
    """.split()
)
_READ = frozenset({"__bool__", "__float__", "__index__", "__int__", "item", "tolist"})
_IN_PLACE = frozenset({"__setitem__", "__iadd__", "__iand__", "__imul__", "__ior__", "__isub__", "__itruediv__"})
"""Names of torch functions: those that make a known tensor, that fill one of the shape of any other, that pass a known
one on, that read it, that write to a tensor."""
_FINITE = {"isfinite": True, "isinf": False, "isnan": False}
"""Names of torch functions, and what they say of every element of a tensor of usual values."""
_JOINED = frozenset({"__and__", "__or__", "bitwise_and", "bitwise_or", "logical_and", "logical_or"})
_NEGATED = frozenset({"__invert__", "bitwise_not", "logical_not"})


class KnownValues:
    """The known values of one run of a model. Nothing random and nothing that depends on inputs or weights is known."""

    def __init__(self) -> None:
        self._real: Any = WeakTensorKeyDictionary()
        self._usual: Any = WeakTensorKeyDictionary()
        """Tensor of truth values that says which elements of others are finite, or are not -> what it says of all. A
        branch may read whether all or any are; the elements are not known: targets that are missing may be NaN."""

    def assumed(self, function: Any, args: tuple[Any, ...]) -> bool | None:
        """What the call reads of whether all or any elements of a tensor are finite, if it does."""
        reads = _name(function) in ("__bool__", "item") and args and isinstance(args[0], Tensor) and not args[0].dim()
        return self._usual.get(args[0]) if reads else None

    def readable(self, function: Any, args: tuple[Any, ...]) -> Tensor | None:
        """The real tensor that the call reads a value of, if that is known."""
        if _name(function) not in _READ or not args or not isinstance(args[0], Tensor):
            return None
        known: Tensor | None = self._real.get(args[0])
        return known

    def places(self, function: Any, args: tuple[Any, ...]) -> tuple[list[int], ...] | None:
        """Where a mask that is known is true, by dim, for `x[mask]` and `masked_select(x, mask)`; else None."""
        if _name(function) not in ("__getitem__", "masked_select") or len(args) != 2:
            return None
        values, mask = args
        if not (isinstance(mask, Tensor) and mask.dtype == torch.bool and mask.dim() and mask in self._real):
            return None
        covered = values.shape if _name(function) == "masked_select" else values.shape[: mask.dim()]
        if mask.shape != covered:
            return None
        with _disable_current_modes():
            return tuple(place.tolist() for place in self._real[mask].nonzero(as_tuple=True))

    def follow(self, function: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], result: Any) -> None:
        """Note the value of the tensor that a call returned, if it follows from known ones."""
        name = _name(function)
        if isinstance(result, Tensor) and (usual := self._finite(name, args, kwargs)) is not None:
            self._usual[result] = usual
        if name == "__setitem__" and all(t in self._real for t in tensors_in(args)):
            target, place, value = self._replaced(args)
            with _disable_current_modes():
                target = target.clone()
                target[place] = value
            self._real.clear()  # others may share its memory
            self._real[args[0]] = target
            return
        if name in _IN_PLACE or (name.endswith("_") and not name.endswith("__")) or "out" in kwargs:
            self._real.clear()  # one of them may be the tensor that was written to, or share its memory
            return
        if not isinstance(result, Tensor) or result.numel() > MOST_ELEMENTS:
            return
        if name in _FILLED and not tensors_in((args[1:], kwargs)):  # of the first argument only the shape is read
            with _disable_current_modes():
                fill = _fill_of(name, args, kwargs)
                self._real[result] = torch.full(tuple(result.shape), fill, dtype=result.dtype)
            return
        if not (name in _FOLLOWED or (name in _MADE and not tensors_in((args, kwargs)))):
            return
        if any(t not in self._real for t in tensors_in((args, kwargs))):
            return
        real_args, real_kwargs = self._replaced((args, dict(kwargs)))
        with _disable_current_modes():
            real = function(*real_args, **real_kwargs)
        if real.shape == result.shape and real.dtype == result.dtype:
            self._real[result] = real

    def _finite(self, name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bool | None:
        given = [self._usual.get(t) for t in tensors_in((args, kwargs))]
        if name in _FINITE:
            return _FINITE[name] if given == [None] else None
        if not given or None in given or len({*given}) > 1:
            return None
        if name in _NEGATED:
            return not given[0]
        return given[0] if name in _JOINED or name in ("all", "any") else None

    def _replaced(self, values: Any) -> Any:
        """Arguments with known tensors in place of fake ones."""
        return tree_map_only(Tensor, self._real.__getitem__, values)


def _fill_of(name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """The number of which a call of `_FILLED` makes a tensor."""
    if "full" not in name:
        return int("ones" in name)
    return kwargs["fill_value"] if "fill_value" in kwargs else args[-1]


def _name(function: Any) -> str:
    return getattr(function, "__name__", "")
