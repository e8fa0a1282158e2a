"""FLOPs and bytes of one operator, from shapes alone.

A matrix product counts multiplications and additions separately (2·m·k·n). Every other computing operator counts one
FLOP for each element of its largest input or first output, whichever is more: elementwise operators count their output,
reductions their input. Of complex numbers each counts as two real ones, and a multiplication with its addition as four
of these. A Fourier transform of n numbers counts 5·n·log2 n, of real ones half of that. Views and data movement count
none. Bytes are what a kernel of this operator alone would read
and write; a view moves nothing, a gather reads only the rows that it returns.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from alpa_explore.graph.loops import SCAN, body_of, steps_of
from alpa_explore.graph.operator import Argument, Ref
from alpa_explore.graph.tensor import Tensor

VIEWS = frozenset(
    """
    aten.alias aten.as_strided aten.detach aten.diagonal aten.expand aten.permute aten.select aten.slice aten.split
    aten.split_with_sizes aten.squeeze aten.t aten.transpose aten.unbind aten.unfold aten.unsqueeze aten.view
    aten.view_as_complex aten.view_as_real aten._unsafe_view aten.real aten.imag aten._conj
    """.split()
)
"""Operators (without overload) that return the memory of their input under another shape."""

MOVEMENT = frozenset(
    """
    aten._to_copy aten.arange aten.as_strided_scatter aten.cat aten.clone aten.constant_pad_nd aten.copy
    aten.diagonal_scatter aten.embedding aten.empty aten.empty_like aten.fill aten.flip aten.full aten.full_like
    aten.gather aten.index aten.index_select aten.masked_fill aten.masked_select aten.new_empty aten.new_full
    aten.new_ones aten.new_zeros aten.ones aten.ones_like aten.repeat aten.roll aten.scalar_tensor aten.scatter
    aten.select_backward aten.select_scatter aten.slice_backward aten.slice_scatter aten.stack aten.tril aten.triu
    aten.where aten.zeros aten.zeros_like alpa_explore.zigzag constant.literal
    """.split()
)
"""Operators that write new memory without arithmetic."""

RECURRENCES = frozenset(
    f"alpa_explore.{cell}_recurrence{part}" for cell in ("lstm", "gru", "rnn") for part in ("", "_backward")
)
"""A layer and direction of a recurrent network: a product in each step. Of all of them the first input is [samples,
steps, …] and the second the weight."""
LINEAR_SCANS: Mapping[str, int] = {
    "alpa_explore.wkv": 23,
    "alpa_explore.wkv_backward": 53,
    "alpa_explore.selective_scan": 7,
    "alpa_explore.selective_scan_backward": 20,
}
"""Linear recurrences of single channels, one kernel that needs no matrix units, and their FLOPs: of `wkv` for each
sample, step and channel, of `selective_scan` for each number of the state too. An exponential counts as one; the
backward pass goes through the steps again."""
_COMPLEX = frozenset({"complex64", "complex128"})
_FOURIER = frozenset({"aten._fft_c2c", "aten._fft_r2c", "aten._fft_c2r"})
LINEAR_ALGEBRA: Mapping[str, float] = {
    "aten.linalg_cholesky_ex": 1 / 3,
    **dict.fromkeys(("aten.linalg_lu", "aten.linalg_lu_factor_ex", "aten._linalg_solve_ex"), 2 / 3),
    **dict.fromkeys(("aten._linalg_det", "aten._linalg_slogdet"), 2 / 3),
    "aten.linalg_inv_ex": 2,
    "aten.linalg_qr": 4,
    "aten._linalg_eigh": 9,
    "aten._linalg_svd": 21,
    "aten.linalg_solve_triangular": 1,
    **dict.fromkeys(("aten.linalg_lu_solve", "aten.cholesky_solve"), 2),
}
"""FLOPs for each number and row of the matrix that is factorised, or of the right side that is solved for (Golub and
Van Loan, Matrix Computations)."""
GATHERS = frozenset({"aten.embedding", "aten.gather", "aten.index", "aten.index_select"})
"""Operators that read of their first input, the table, as much as they write."""
GROUPED = frozenset(
    {"aten._grouped_mm", "transformers.grouped_mm_fallback", "transformers.grouped_mm_fallback_backward"}
)
"""Products of the rows of each expert with its matrix."""
PRODUCTS = frozenset({"aten.mm", "aten.addmm", "aten.bmm", "aten.baddbmm", "aten.matmul"})
"""Products of two matrices: the last two inputs."""


def packet(kind: str) -> str:
    """The operator without its overload: 'aten.mm.default' -> 'aten.mm'."""
    return kind.rsplit(".", 1)[0] if kind.count(".") > 1 else kind


def is_view(kind: str) -> bool:
    """True if operators of this kind return the memory of their input."""
    return packet(kind) in VIEWS


def is_matrix_product(kind: str) -> bool:
    """True for matrix products, convolutions, attention and experts, which account for nearly all FLOPs."""
    return packet(kind) in _HEAVY


def steps(kind: str, inputs: Sequence[Tensor]) -> int:
    """Kernels of the operator that must run one after another, under any division: the steps of a recurrence."""
    return inputs[0].shape[1] if packet(kind) in RECURRENCES else 1


def launches(kind: str, inputs: Sequence[Tensor], arguments: Sequence[Argument]) -> int:
    """Kernels that the host launches for the operator: of a scan all of its steps, each an operator of the body."""
    if kind == SCAN:
        return steps_of(arguments, inputs) * body_of(arguments).kernels
    return steps(kind, inputs)


def flops(kind: str, inputs: Sequence[Tensor], outputs: Sequence[Tensor], arguments: Sequence[Argument] = ()) -> int:
    """FLOPs of the whole operator; `inputs` in the order of the operator's tensor arguments."""
    if packet(kind) in _FOURIER:
        return _fourier_flops(inputs[0], outputs[0], arguments)
    return _flops(kind, inputs, outputs, arguments) * real_flops(kind, (*inputs, *outputs))


def real_flops(kind: str, tensors: Sequence[Tensor]) -> int:
    """FLOPs on real numbers for each one of an operator on these tensors: 1 where none of them is complex."""
    if kind == SCAN or not any(t.dtype in _COMPLEX for t in tensors):  # a scan has those of its body
        return 1
    return 4 if is_matrix_product(kind) else 2


def _fourier_flops(read: Tensor, made: Tensor, arguments: Sequence[Argument]) -> int:
    """Of `aten._fft_c2c`, `_fft_r2c` and `_fft_c2r`, whose second argument are the dims."""
    real = read if read.dtype not in _COMPLEX else made
    dims = arguments[1]
    assert isinstance(dims, tuple)
    points = math.prod(real.shape[d] for d in dims if isinstance(d, int))
    whole = 5 * real.elements * math.log2(max(points, 2))
    return round(whole if real.dtype in _COMPLEX else whole / 2)


def _flops(kind: str, inputs: Sequence[Tensor], outputs: Sequence[Tensor], arguments: Sequence[Argument]) -> int:
    """The same, as if numbers were real."""
    name = packet(kind)
    if name in VIEWS or name in MOVEMENT:
        return 0
    shapes = [t.shape for t in inputs]
    if name in PRODUCTS:
        return _product_flops(*shapes[-2:])
    if name in GROUPED:
        # Rows of the first operand are divided among the groups: each row meets one group's matrix; backwards, twice.
        return _product_flops(*shapes[:2]) * (2 if name.endswith("_backward") else 1)
    if name == "aten.convolution":
        return _convolution_flops(shapes[0], shapes[1], outputs[0].shape, transposed=bool(arguments[6]))
    if name == "aten.convolution_backward":
        forward = _convolution_flops(shapes[1], shapes[2], shapes[0], transposed=bool(arguments[7]))
        mask = arguments[10]
        assert isinstance(mask, tuple)
        return forward * sum(bool(selected) for selected in mask[:2])
    if name in ATTENTION:
        options, backward = attention_options(name, arguments), name.endswith("_backward")
        query, value, causal = shapes[backward], shapes[2 + backward], bool(options.causal)
        return attention_flops(query, value, causal=causal, window=options.window, backward=backward)
    if name in ROUTED:
        # Every row, of which each token has k, meets the matrices of one expert; in the backward pass twice.
        each = sum(math.prod(m[1:]) for m in matrix_shapes(name, shapes, arguments)) * ROUTED[name].products
        return 2 * math.prod(shapes[ROUTED[name].chosen]) * each
    if name in RECURRENCES:
        return 2 * math.prod(shapes[0][:2]) * math.prod(shapes[1])
    if kind == SCAN:
        return steps_of(arguments, inputs) * sum(o.flops for o in body_of(arguments).operators)
    if name in LINEAR_SCANS:
        return LINEAR_SCANS[name] * _scanned(name, shapes)
    if name in ("aten._cdist_forward", "aten._cdist_backward"):  # a difference, its power and a sum for each number
        backward = name.endswith("backward")
        return 3 * (inputs[3] if backward else outputs[0]).elements * shapes[backward][-1]
    if name in LINEAR_ALGEBRA:
        of = outputs[0] if "solve" in name and name != "aten._linalg_solve_ex" else inputs[0]
        return round(LINEAR_ALGEBRA[name] * of.elements * of.shape[-2])
    if name in ("aten.embedding_dense_backward", "aten.index_put", "aten.scatter_add", "aten.index_add"):
        # One addition for each element that is scattered, not for each row of the table.
        return max(inputs[0].elements if name == "aten.embedding_dense_backward" else inputs[-1].elements, 1)
    work = max((t.elements for t in inputs), default=0)
    return max(work, outputs[0].elements if outputs else 0)


def bytes_accessed(
    kind: str, inputs: Sequence[Tensor], outputs: Sequence[Tensor], arguments: Sequence[Argument] = ()
) -> int:
    """Bytes read and written by one kernel of the operator; a tensor that is read twice counts once."""
    name = packet(kind)
    if name in VIEWS:
        return 0
    written = sum(t.bytes for t in outputs)
    if kind == SCAN:
        return steps_of(arguments, inputs) * sum(o.bytes_accessed for o in body_of(arguments).operators)
    if name in ROUTED:
        return written + sum(t.bytes for t in _distinct(inputs)) + _routed_traffic(name, inputs, arguments)
    if name in GATHERS and inputs:
        table = arguments[0].tensor if arguments and isinstance(arguments[0], Ref) else inputs[0].index
        return 2 * written + sum(t.bytes for t in _distinct(inputs) if t.index != table)
    return written + sum(t.bytes for t in _distinct(inputs))


def _product_flops(left: tuple[int, ...], right: tuple[int, ...]) -> int:
    """2·batch·m·k·n for [batch, m, k] times [batch, k, n] (batch absent for plain matrices)."""
    return 2 * math.prod(left) * right[-1]


def attention_flops(
    query: tuple[int, ...], value: tuple[int, ...], *, causal: bool, window: int = 0, backward: bool = False
) -> int:
    """Two products over all scores that are not masked by `causal` and `window`: q kᵀ and p v, for [b, hq, sq, d] and
    [b, hkv, sk, dv]. 4·b·hq·sq·sk·d where dv = d, half of it for causal with sq = sk (kernels skip masked blocks).
    Five in the backward pass: q kᵀ again, dy vᵀ, pᵀ dy, ds k, dsᵀ q; 2.5 times as many where dv = d."""
    widths = 3 * query[-1] + 2 * value[-1] if backward else query[-1] + value[-1]
    return 2 * widths * _scores(query, value, causal=causal, window=window) // 2


def _scores(query: tuple[int, ...], value: tuple[int, ...], *, causal: bool, window: int) -> int:
    """Twice the number of scores. Causal: query i sees the keys 0 … i, taken as an area: a diagonal counts half. A
    window takes away what the queries that many rows before would see."""
    rows, columns = query[-2], value[-2]
    seen = 2 * rows * columns
    if causal:
        seen = _triangle(rows, columns) - (_triangle(rows - window, columns) if 0 < window < rows else 0)
    return math.prod(query[:-2]) * seen


def _triangle(rows: int, columns: int) -> int:
    square = min(rows, columns)
    return square * square + 2 * (rows - square) * columns


class AttentionOptions(NamedTuple):
    """The last arguments of attention (`tracing.attention`), of which those with a default may be missing."""

    causal: Any = False
    scale: Any = 1.0
    dropout: Any = 0.0
    seed: Any = None
    first: Any = (0, 0, 0)
    window: Any = 0
    softcap: Any = 0.0
    chunks: Any = 0
    sink: Any = None
    """Of the forward operator alone."""

    def given(self, first: Argument) -> tuple[Argument, ...]:
        """As arguments, with these first positions; the backward operator has no sink."""
        options = tuple(self._replace(first=first))
        return options if self.sink is not None else options[:-1]


ATTENTION: Mapping[str, int] = {"alpa_explore.attention": 4, "alpa_explore.attention_backward": 7}
"""Attention, forward and backward, and how many arguments come before its options; the mask is one of them."""


def attention_options(kind: str, arguments: Sequence[Any]) -> AttentionOptions:
    """The options of attention; for other operators, those of no options."""
    return AttentionOptions(*arguments[ATTENTION.get(packet(kind), len(arguments)) :])


class _Routed(NamedTuple):
    """Where an operator of routed experts has its inputs (`tracing.experts`)."""

    chosen: int
    """Among its inputs, the experts that every token chose, [T, k]."""
    matrices: int
    """Among its arguments, the tuple of matrices; as an input the first of them has the same place."""
    products: int
    """For each matrix."""


ROUTED: Mapping[str, _Routed] = {
    "alpa_explore.experts": _Routed(1, 3, 1),
    "alpa_explore.experts_backward": _Routed(1, 5, 2),
}
"""Routed experts, forward and backward."""
_HEAVY = PRODUCTS.union(GROUPED, ROUTED, RECURRENCES, ATTENTION, ("aten.convolution", "aten.convolution_backward"))


def matrix_shapes(
    name: str, shapes: Sequence[tuple[int, ...]], arguments: Sequence[Argument]
) -> Sequence[tuple[int, ...]]:
    """Of the shapes of an operator's inputs those of its matrices, [experts, …, …]; the down projection is the last."""
    first, given = ROUTED[name].matrices, arguments[ROUTED[name].matrices]
    assert isinstance(given, tuple)
    return shapes[first : first + len(given)]


def _routed_traffic(name: str, inputs: Sequence[Tensor], arguments: Sequence[Argument]) -> int:
    """Bytes inside an operator of routed experts that are neither inputs nor outputs.

    Forward: hidden is read, inner written and read, the experts' results written and read. Backward: for every row dy
    and drows written and read, u and dhidden too, inner once more.
    """
    shapes = [t.shape for t in inputs]
    *ups, down = matrix_shapes(name, shapes, arguments)
    element = inputs[ROUTED[name].matrices].bytes // max(inputs[ROUTED[name].matrices].elements, 1)
    width = shapes[0][1]
    inner = math.prod(down[1:]) // width
    hidden = sum(math.prod(up[1:]) // width for up in ups)
    each_row = hidden + 2 * inner + 2 * width if ROUTED[name].products == 1 else 4 * width + 4 * inner + 2 * hidden
    return math.prod(shapes[ROUTED[name].chosen]) * element * each_row


def _scanned(name: str, shapes: Sequence[tuple[int, ...]]) -> int:
    """Numbers of a state, over all samples, channels and steps."""
    if name.startswith("alpa_explore.wkv"):
        return math.prod(shapes[-1])
    decay = next(i for i, shape in enumerate(shapes) if len(shape) == 2)
    return math.prod(shapes[0]) * shapes[decay][1]


def _convolution_flops(
    image: tuple[int, ...], weight: tuple[int, ...], output: tuple[int, ...], *, transposed: bool
) -> int:
    """2 · positions · weights per position, for a weight of shape [out, in/groups, *kernel].

    Each output element is a product with in/groups · kernel weights; a transposed convolution (weight [in, out/groups,
    *kernel]) exchanges the roles of image and output.
    """
    return 2 * math.prod(image if transposed else output) * math.prod(weight[1:])


def _distinct(tensors: Sequence[Tensor]) -> list[Tensor]:
    return list({t.index: t for t in tensors}.values())
