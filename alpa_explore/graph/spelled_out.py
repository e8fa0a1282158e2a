"""Attention that a model spells out: a batched product, a softmax of its last dim, and a product with the result.

Scale, mask, casts and dropout may stand between. Such a model writes and reads tensors of all scores, S × S for each
head, which a fused kernel keeps on the chip; what that is worth is said in the warnings of a plan.

Routed experts captured as one operator (`tracing.experts`) can be divided by tokens and experts. Written as a sort and
grouped products, neither can: every device of a stage sorts all tokens and holds their rows.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from alpa_explore import units
from alpa_explore.graph import counts
from alpa_explore.graph.graph import TrainingGraph
from alpa_explore.graph.operator import Operator, Phase

_NAMED = 2
"""Modules that a warning names."""


def unrecognised_experts_warnings(graph: TrainingGraph) -> tuple[str, ...]:
    """One sentence if `graph` has grouped products, else none."""
    products = [o for o in graph.operators if counts.packet(o.kind) in counts.GROUPED]
    if not products:
        return ()
    modules = tuple(dict.fromkeys(o.module or "the model itself" for o in products))
    shown = ", ".join(modules[:_NAMED]) + (", …" if len(modules) > _NAMED else "")
    share = sum(o.flops for o in products) / max(sum(o.flops for o in graph.operators), 1)
    rows = units.bytes_(sum(_row_bytes(graph, o) for o in products))
    return (
        f"Routed experts are not recognised ({shown}): every device of a stage sorts all tokens and moves all of their "
        f"rows, {rows} for a microbatch, and their products ({share:.0%} of the FLOPs) can be divided neither by "
        "tokens nor by experts: call alpa_explore.models.routed_experts.routed_experts.",
    )


def _row_bytes(graph: TrainingGraph, product: Operator) -> int:
    """Bytes of the rows that a product reads and writes: those of its tensors of two dims."""
    tensors = [graph.tensors[t] for t in (*product.inputs, *product.outputs)]
    return sum(t.bytes for t in tensors if len(t.shape) == 2)


_SOFTMAX = frozenset({"aten._softmax.default", "aten._safe_softmax.default"})


@dataclass(frozen=True, slots=True, kw_only=True)
class SpelledOut:
    """One attention that is spelled out."""

    module: str
    """Path of the module that computes the softmax; '' for the model itself."""
    operators: tuple[int, ...]
    """The forward operators from the first product to the second, ascending."""
    score_bytes: int
    """Bytes of all tensors of its scores that one microbatch writes, forward and backward; views are not counted."""


def spelled_out_attention(graph: TrainingGraph) -> tuple[SpelledOut, ...]:
    """Every attention of `graph` that is spelled out, in the order in which they run."""
    backward: dict[int, list[Operator]] = defaultdict(list)
    for operator in graph.operators:
        if operator.phase is Phase.BACKWARD and operator.forward is not None:
            backward[operator.forward].append(operator)
    return tuple(found for o in graph.forward_operators if o.kind in _SOFTMAX for found in _around(graph, o, backward))


def spelled_out_warnings(graph: TrainingGraph) -> tuple[str, ...]:
    """One sentence if `graph` spells attention out, else none. The catalogue's models do so on purpose: those of the
    paper ran that way."""
    found = spelled_out_attention(graph)
    if not found or (graph.recipe is not None and ":" not in graph.recipe):
        return ()
    modules = tuple(dict.fromkeys(one.module or "the model itself" for one in found))
    shown = ", ".join(modules[:_NAMED]) + (", …" if len(modules) > _NAMED else "")
    places = f"{len(found):,} times" if len(found) > 1 else "once"
    written = units.bytes_(sum(one.score_bytes for one in found))
    return (
        f"Attention is spelled out in products and a softmax {places} ({shown}) and writes {written} of scores for a "
        "microbatch, which a fused kernel never writes: call torch.nn.functional.scaled_dot_product_attention, with a "
        "mask that is not learned.",
    )


def _around(graph: TrainingGraph, softmax: Operator, backward: Mapping[int, list[Operator]]) -> Iterator[SpelledOut]:
    """The attention around a softmax, if it is one."""
    scores = graph.tensors[softmax.inputs[0]]
    rank = len(scores.shape)
    if rank < 3 or min(scores.shape[-2:]) == 1 or softmax.arguments[1] not in (-1, rank - 1):
        return
    chains = [_chain(graph, softmax, scores.elements, backwards=side) for side in (True, False)]
    if not all(any(counts.is_matrix_product(o.kind) for o in chain.values()) for chain in chains):
        return
    members = {softmax.index: softmax, **chains[0], **chains[1]}
    operators = {o.index: o for m in members.values() for o in (m, *backward[m.index]) if not counts.is_view(o.kind)}
    written = [graph.tensors[t] for o in operators.values() for t in o.outputs]
    score_bytes = sum(t.bytes for t in written if t.elements == scores.elements and t.shape[-1] == scores.shape[-1])
    yield SpelledOut(module=softmax.module, operators=tuple(sorted(members)), score_bytes=score_bytes)


def _chain(graph: TrainingGraph, start: Operator, elements: int, *, backwards: bool) -> dict[int, Operator]:
    """The forward operators that pass on tensors of `elements` elements before or after `start`, up to the batched
    products that make or read them, by index."""
    members: dict[int, Operator] = {}
    waiting = [start]
    while waiting:
        operator = waiting.pop()
        for tensor in operator.inputs if backwards else operator.outputs:
            if graph.tensors[tensor].elements != elements:
                continue
            producer = graph.tensors[tensor].producer
            near = graph.readers.get(tensor, ()) if not backwards else () if producer is None else (producer,)
            for index in near:
                other = graph.operators[index]
                if other.phase is not Phase.FORWARD or other.kind in _SOFTMAX or index in members:
                    continue
                product = counts.is_matrix_product(other.kind)
                if not product:
                    waiting.append(other)
                if not product or len(graph.tensors[other.outputs[0]].shape) > 2:
                    members[index] = other
    return members
