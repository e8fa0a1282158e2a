"""From a joint graph's nodes to drafts of operators: nodes that compute nothing fold away.

Folded: getitem (an operator has several outputs), detach and alias, views and casts that change nothing, a view of a
view (one view of the first), and a transpose of a transpose where the two cancel. Every transpose is written as
`aten.permute.default` and every reshape as `aten.view.default` with the sizes spelt out. Small tensors written in the
model's code become `constant.literal` operators, so that the graph holds their values.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import torch
from torch import fx
from torch._subclasses import FakeTensor

from alpa_explore.errors import CaptureError
from alpa_explore.graph import Argument, Symbol, counts
from alpa_explore.tracing.aten import DROPPED_KEYWORDS, LITERAL, to_symbol
from alpa_explore.tracing.joint_graph.locate import MODULE, SOURCE
from alpa_explore.tracing.joint_graph.trace import JointGraph
from alpa_explore.units import DTYPE_BYTES

LITERAL_ELEMENTS = 4096
"""A tensor in the model's code with more elements than this is a graph input of kind CONSTANT instead."""


@dataclass(frozen=True, slots=True)
class Key:
    """A traced tensor: name of the node that makes it, and which of its outputs."""

    node: str
    output: int = 0


DraftArgument: TypeAlias = "Argument | Key | tuple[DraftArgument, ...]"


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """An operator before its tensors have numbers."""

    name: str
    kind: str
    arguments: tuple[DraftArgument, ...]
    keywords: tuple[tuple[str, DraftArgument], ...]
    outputs: tuple[Key, ...]
    backward: bool
    sequence: int | None
    """Autograd's sequence number: a backward operator's is that of its forward operator."""
    module: str
    source: str

    @property
    def inputs(self) -> tuple[Key, ...]:
        """The tensors it reads, in order of appearance, with repeats."""
        return keys((*self.arguments, *(value for _, value in self.keywords)))


@dataclass(slots=True, kw_only=True)
class Drafts:
    """All drafts in traced order, the traced tensors, and which tensor each folded node stands for."""

    operators: list[Draft] = field(default_factory=list)
    tensors: dict[Key, torch.Tensor] = field(default_factory=dict)
    constants: dict[Key, torch.Tensor] = field(default_factory=dict)
    literals: dict[int, Key] = field(default_factory=dict)
    """id of a tensor in the model's code -> its key, so that each is drafted once."""
    maker: dict[Key, Draft] = field(default_factory=dict)
    values: dict[fx.Node, Key | tuple[Key | None, ...]] = field(default_factory=dict)

    def key(self, node: fx.Node) -> Key:
        """The one tensor that a node stands for."""
        value = self.values[node]
        assert isinstance(value, Key), f"{node} has several outputs"
        return value

    def add(self, draft: Draft, outputs: Sequence[torch.Tensor]) -> None:
        """Append a draft whose outputs have these shapes and dtypes."""
        self.operators.append(draft)
        for key, tensor in zip(draft.outputs, outputs, strict=True):
            self.tensors[key], self.maker[key] = tensor, draft


def keys(argument: Any) -> tuple[Key, ...]:
    """The traced tensors inside an argument, in order of appearance."""
    if isinstance(argument, Key):
        return (argument,)
    if isinstance(argument, tuple):
        return tuple(k for a in argument for k in keys(a))
    return ()


def draft(joint: JointGraph) -> Drafts:
    """Draft an operator for each node of the joint graph that computes something."""
    drafts = Drafts()
    for node in joint.module.graph.nodes:
        if node.op == "placeholder":
            drafts.values[node] = key = Key(node.name)
            drafts.tensors[key] = node.meta["val"]
            if joint.tangent is node:
                _draft_tangent(drafts, joint.tangent)
        elif node.op == "get_attr":
            _draft_constant(drafts, node, getattr(joint.module, str(node.target)))
        elif node.op == "call_function" and node.target is operator.getitem:
            parts = drafts.values[node.args[0]]
            assert isinstance(parts, tuple)
            drafts.values[node] = parts[node.args[1]]
        elif node.op == "call_function":
            _draft_call(drafts, node)
    return drafts


def _draft_tangent(drafts: Drafts, node: fx.Node) -> None:
    """The gradient of the loss with respect to itself, a one."""
    key, value = Key(node.name), node.meta["val"]
    dtype = to_symbol(value.dtype)
    assert dtype is not None
    one = Draft(
        name=node.name,
        kind="aten.full.default",
        arguments=((), 1.0),
        keywords=(("dtype", dtype),),
        outputs=(key,),
        backward=True,
        sequence=None,
        module="",
        source="",
    )
    drafts.add(one, [value])


def _draft_constant(drafts: Drafts, node: fx.Node, value: object) -> None:
    if not isinstance(value, torch.Tensor):
        raise CaptureError(
            "The model uses a construct that has no operators",
            found=f"{node.target} ({type(value).__name__})",
            remedy="Replace torch.cond, flex_attention and the like by plain tensor operators.",
        )
    drafts.values[node] = key = drafts.literals.setdefault(id(value), Key(node.name))
    if key in drafts.tensors:
        return
    if isinstance(value, FakeTensor) or value.device.type == "meta" or value.numel() > LITERAL_ELEMENTS:
        drafts.tensors[key] = drafts.constants[key] = value
        return
    dtype = to_symbol(value.dtype)
    assert dtype is not None
    literal = Draft(
        name=node.name,
        kind=LITERAL,
        arguments=(tuple(value.flatten().tolist()), tuple(value.shape)),
        keywords=(("dtype", dtype),),
        outputs=(key,),
        backward=False,
        sequence=None,
        module="",
        source="",
    )
    drafts.add(literal, [value])


def _draft_call(drafts: Drafts, node: fx.Node) -> None:
    place = node.meta.get("custom", {})
    module, source = place.get(MODULE, ""), place.get(SOURCE, "")
    where = f"module {module or '(the model itself)'}, {source or 'source unknown'}"
    if node.target is torch.ops.higher_order.with_effects and not any(v is not None for v in node.meta["val"][1:]):
        drafts.values[node] = (
            None,
            None,
        )  # a check of values (of torch.linalg, for one): it returns only its turn in line
        return
    if not isinstance(node.target, torch._ops.OpOverload):
        raise CaptureError(
            "The model uses a construct that has no operators",
            found=f"{node.target} in {where}",
            remedy="Replace torch.cond, flex_attention and the like by plain tensor operators.",
        )
    kind = str(node.target)
    arguments = tuple(_argument(drafts, a) for a in node.args)
    _check_dtypes(drafts, kind, arguments, where)
    keywords = {k: _argument(drafts, v) for k, v in node.kwargs.items() if k not in DROPPED_KEYWORDS and v is not None}
    value = node.meta.get("val", ())  # an assertion returns nothing
    kind, arguments, folded = _fold(drafts, kind, arguments, keywords, value)
    if folded is not None:
        drafts.values[node] = folded
        return
    parts = [value] if isinstance(value, torch.Tensor) else list(value)
    made = [None if part is None else Key(node.name, place) for place, part in enumerate(parts)]
    drafts.values[node] = Key(node.name) if isinstance(value, torch.Tensor) else tuple(made)
    outputs = [part for part in parts if part is not None]
    for part in outputs:
        if str(part.dtype).removeprefix("torch.") not in DTYPE_BYTES:
            raise CaptureError(
                "A tensor has a dtype that is not known here",
                found=f"{part.dtype} made by {kind} in {where}",
                remedy="Capture with precision='bfloat16', or keep to float, int and bool dtypes.",
            )
    drafts.add(
        Draft(
            name=node.name,
            kind=kind,
            arguments=arguments,
            keywords=tuple(keywords.items()),
            outputs=tuple(k for k in made if k is not None),
            backward=node.meta.get("partitioner_tag") in ("is_backward", "must_be_in_backward"),
            sequence=node.meta.get("seq_nr"),
            module=module,
            source=source,
        ),
        outputs,
    )


def _check_dtypes(drafts: Drafts, kind: str, arguments: tuple[DraftArgument, ...], where: str) -> None:
    """Products of unlike dtypes pass on fake tensors and fail on real ones: they are caught here."""
    if not counts.is_matrix_product(kind) or counts.packet(kind).startswith("transformers."):
        return
    dtypes = {str(drafts.tensors[a].dtype).removeprefix("torch.") for a in arguments if isinstance(a, Key)}
    if kind == "aten._grouped_mm.default":
        dtypes.discard("int32")  # the offsets of the groups
    if len(dtypes) > 1:
        raise CaptureError(
            "A product of unlike dtypes",
            found=f"{' and '.join(sorted(dtypes))} in {kind}, {where}",
            remedy="Check the example inputs and the casts in the model: tokens are int64, other inputs floating.",
        )


def _argument(drafts: Drafts, value: Any) -> DraftArgument:
    if isinstance(value, fx.Node):
        return drafts.key(value)
    if isinstance(value, list | tuple):
        return tuple(_argument(drafts, v) for v in value)
    if value is None or isinstance(value, bool | int | float | str):
        return value
    symbol = to_symbol(value)
    assert symbol is not None, f"an argument of type {type(value).__name__} cannot be kept"
    return symbol


SAME_IF_SAME_SHAPE = frozenset(
    {
        "aten.view.default",
        "aten._unsafe_view.default",
        "aten.expand.default",
        "aten.slice.Tensor",
        "aten.repeat.default",
        "aten.slice_backward.default",
        "aten.squeeze.dim",
        "aten.squeeze.dims",
        "aten.squeeze.default",
    }
)
_ALWAYS_SAME = frozenset(
    {
        "aten.detach.default",
        "aten.alias.default",
        "aten.lift_fresh.default",
        "aten.lift_fresh_copy.default",
    }
)
_VIEW, _PERMUTE = "aten.view.default", "aten.permute.default"

Folded: TypeAlias = "tuple[str, tuple[DraftArgument, ...], Key | None]"


def _fold(
    drafts: Drafts, kind: str, arguments: tuple[DraftArgument, ...], keywords: Mapping[str, DraftArgument], value: Any
) -> Folded:
    """The call in its plain form: kind, arguments, and the tensor that it equals if it computes nothing."""
    if kind == "aten.cat.default" and isinstance(arguments[0], tuple):
        # Caches for generation start as empty tensors of one dim, to which cat gives no place in the result.
        parts = tuple(part for part in arguments[0] if isinstance(part, Key) and drafts.tensors[part].numel())
        return kind, (parts, *arguments[1:]), parts[0] if len(parts) == 1 else None
    if not arguments or not isinstance(arguments[0], Key):
        return kind, arguments, None
    source = arguments[0]
    before = drafts.tensors[source]
    if kind in _ALWAYS_SAME:
        return kind, arguments, source
    if kind in SAME_IF_SAME_SHAPE and before.shape == value.shape:
        return kind, arguments, source
    if kind == "aten._to_copy.default":
        dtype = keywords.get("dtype")
        same = before.dtype == value.dtype and (dtype is None or isinstance(dtype, Symbol))
        return kind, arguments, source if same else None
    if kind in ("aten.copy.default", "aten.copy"):
        written = arguments[1]
        assert isinstance(written, Key)
        after = drafts.tensors[written]
        same = after.shape == value.shape and after.dtype == value.dtype
        return kind, arguments, written if same else None
    if kind in (_VIEW, "aten._unsafe_view.default"):
        inner = drafts.maker.get(source)
        if inner is not None and inner.kind == _VIEW:
            (source, *_) = inner.inputs
            if drafts.tensors[source].shape == value.shape:
                return kind, arguments, source
        return _VIEW, (source, tuple(value.shape)), None
    if kind in ("aten.t.default", "aten.transpose.int", _PERMUTE):
        order = _order(kind, arguments, before.dim())
        inner = drafts.maker.get(source)
        if inner is not None and inner.kind == _PERMUTE:
            first = inner.arguments[1]
            assert isinstance(first, tuple)
            if tuple(first[place] for place in order) == tuple(range(before.dim())):
                return kind, arguments, inner.inputs[0]
        identity = order == tuple(range(before.dim()))
        return _PERMUTE, (source, order), source if identity else None
    return kind, arguments, None


def _order(kind: str, arguments: tuple[DraftArgument, ...], rank: int) -> tuple[int, ...]:
    """The order of dims that a transpose asks for, as permute has it."""
    order = list(range(rank))
    if kind == _PERMUTE:
        asked = arguments[1]
        assert isinstance(asked, tuple)
        return tuple(int(dim) % rank for dim in asked)  # type: ignore[arg-type]
    first, second = (0, 1) if kind == "aten.t.default" else (int(arguments[1]) % rank, int(arguments[2]) % rank)  # type: ignore[arg-type]
    if rank > 1:
        order[first], order[second] = order[second], order[first]
    return tuple(order)
