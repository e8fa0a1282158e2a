"""From the nodes of a joint graph to drafts of operators; nodes that compute nothing are folded away (`drafts.fold`).

`getitem` nodes disappear, because an operator has several outputs. Small tensors written in the model's code become
`constant.literal` operators, so that the graph holds their values.
"""

import operator

import torch
from torch import Tensor, fx
from torch._subclasses import FakeTensor

from alpa_explore.errors import CaptureError
from alpa_explore.graph import counts
from alpa_explore.tracing.aten import DROPPED_KEYWORDS, LAYOUT_DEPENDENT, LITERAL
from alpa_explore.tracing.joint_graph.locate import MODULE, SOURCE
from alpa_explore.tracing.joint_graph.trace import JointGraph
from alpa_explore.tracing.operators.drafts import Draft, DraftArgument, Drafts, TracedTensor, fold, keys
from alpa_explore.tracing.symbols import frozen, to_symbol, unmasked
from alpa_explore.units import DTYPE_BYTES

LITERAL_ELEMENTS = 4096
"""A tensor of the model's code with more elements is an input of the graph, of kind CONSTANT, instead of a literal. Set
by hand."""


def draft(joint: JointGraph) -> Drafts:
    """Draft an operator for each node of the joint graph that computes something; CaptureError for unsupported
    nodes."""
    drafts = Drafts()
    for node in joint.module.graph.nodes:
        if node.op == "placeholder":
            drafts.values[node] = key = TracedTensor(node.name)
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
            _draft_call(drafts, node, node.name in joint.in_place)
    return drafts


def _draft_tangent(drafts: Drafts, node: fx.Node) -> None:
    """The gradient of the loss with respect to itself: the constant 1."""
    key, value = TracedTensor(node.name), node.meta["val"]
    drafts.add(_written(key, "aten.full.default", ((), 1.0), value, backward=True), [value])


def _written(
    key: TracedTensor, kind: str, arguments: tuple[DraftArgument, ...], value: Tensor, *, backward: bool
) -> Draft:
    """The draft of a tensor that no call of the model makes."""
    dtype = to_symbol(value.dtype)
    assert dtype is not None
    return Draft(
        name=key.node,
        kind=kind,
        arguments=arguments,
        keywords=(("dtype", dtype),),
        outputs=(key,),
        backward=backward,
        sequence=None,
        module="",
        source="",
    )


def _draft_constant(drafts: Drafts, node: fx.Node, value: object) -> None:
    if type(value).__name__ == "Generator":
        raise CaptureError(
            "The model draws random numbers from a generator of its own, which a plan cannot do",
            found=f"torch.Generator ({node.target})",
            remedy="Draw without generator=, or draw before and pass the numbers as an input.",
        )
    if not isinstance(value, Tensor):
        raise CaptureError(
            "The model uses a construct that is not a tensor operator",
            found=f"{node.target} ({type(value).__name__})",
            remedy="Replace torch.cond, flex_attention and similar constructs with plain tensor operators.",
        )
    drafts.values[node] = key = drafts.literals.setdefault(id(value), TracedTensor(node.name))
    if key in drafts.tensors:
        return
    if isinstance(value, FakeTensor) or value.device.type == "meta" or value.numel() > LITERAL_ELEMENTS:
        drafts.tensors[key] = drafts.constants[key] = value
        return
    arguments = tuple(value.flatten().tolist()), tuple(value.shape)
    drafts.add(_written(key, LITERAL, arguments, value, backward=False), [value])


def _draft_call(drafts: Drafts, node: fx.Node, in_place: bool) -> None:
    place = node.meta.get("custom", {})
    module, source = place.get(MODULE, ""), place.get(SOURCE, "")
    where = f"module {module or '(the model itself)'}, {source or 'source unknown'}"
    if node.target is torch.ops.higher_order.with_effects and not any(v is not None for v in node.meta["val"][1:]):
        # A check of values (torch.linalg has some): it returns only a token that orders side effects.
        drafts.values[node] = (None, None)
        return
    if not isinstance(node.target, torch._ops.OpOverload):
        raise CaptureError(
            "The model uses a construct that is not a tensor operator",
            found=f"{node.target} in {where}",
            remedy="Replace torch.cond, flex_attention and similar constructs with plain tensor operators.",
        )
    kind = str(node.target)
    _check_layout(node, kind, where)
    arguments = tuple(frozen(a, drafts.key) for a in node.args)
    _check_dtypes(drafts, kind, arguments, where)
    keywords = {k: frozen(v, drafts.key) for k, v in node.kwargs.items() if k not in DROPPED_KEYWORDS and v is not None}
    value = unmasked(kind, arguments, node.meta.get("val", ()))  # an assertion returns nothing
    kind, arguments, folded = fold(drafts, kind, arguments, keywords, value)
    if folded is not None:
        drafts.values[node] = folded
        return
    parts = [value] if isinstance(value, Tensor) else list(value)
    made = [None if part is None else TracedTensor(node.name, place) for place, part in enumerate(parts)]
    drafts.values[node] = TracedTensor(node.name) if isinstance(value, Tensor) else tuple(made)
    outputs = [part for part in parts if part is not None]
    read = keys((*arguments, *keywords.values()))
    for part in outputs:
        if str(part.dtype).removeprefix("torch.") not in DTYPE_BYTES:
            raise CaptureError(
                "A tensor has an unsupported dtype",
                found=f"{part.dtype} made by {kind} in {where}",
                remedy="Capture with precision='bfloat16', or use float, int and bool dtypes.",
            )
    drafts.add(
        Draft(
            name=node.name,
            kind=kind,
            arguments=arguments,
            keywords=tuple(keywords.items()),
            outputs=tuple(k for k in made if k is not None),
            backward=node.meta.get("partitioner_tag") in ("is_backward", "must_be_in_backward")
            or any(drafts.producer[key].backward for key in read if key in drafts.producer),
            sequence=node.meta.get("seq_nr"),
            module=module,
            source=source,
            in_place=in_place and bool(read),
        ),
        outputs,
    )


def _check_layout(node: fx.Node, kind: str, where: str) -> None:
    """CaptureError for an operator that reads memory in an order that only the captured tensor has."""
    read = node.args[0].meta["val"] if kind in LAYOUT_DEPENDENT and isinstance(node.args[0], fx.Node) else None
    if read is not None and not (read.is_contiguous() and read.storage_offset() == 0):
        raise CaptureError(
            "An operator depends on how its tensor lies in memory, which differs on the devices of a plan",
            found=f"{kind} of a tensor that is not contiguous, in {where}",
            remedy="Call .contiguous() on the tensor first, or use reshape, narrow and unfold in place of as_strided.",
        )


def _check_dtypes(drafts: Drafts, kind: str, arguments: tuple[DraftArgument, ...], where: str) -> None:
    """CaptureError for a product of different dtypes, which runs on fake tensors but would fail on real ones."""
    if not counts.is_matrix_product(kind) or counts.packet(kind).startswith("transformers."):
        return
    if counts.packet(kind).startswith("alpa_explore."):
        return  # the mask may be boolean, and what the softmax leaves for the backward pass is in fp32
    dtypes = {str(drafts.tensors[a].dtype).removeprefix("torch.") for a in arguments if isinstance(a, TracedTensor)}
    if kind == "aten._grouped_mm.default":
        dtypes.discard("int32")  # the offsets of the groups
    if len(dtypes) > 1:
        raise CaptureError(
            "A matrix product has operands of different dtypes",
            found=f"{' and '.join(sorted(dtypes))} in {kind}, {where}",
            remedy="Check the example inputs and the casts in the model: tokens are int64, others floating-point.",
        )
