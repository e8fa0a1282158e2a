"""The phase of each draft, and the forward operator that each backward operator belongs to.

A backward operator carries the sequence number of the forward operator that autograd differentiated. Sums of gradients
do not, so they are assigned by rule. The total sum belongs to the producer of the tensor whose gradient it is; a
partial sum to the earliest forward operator that one of its addends belongs to; the sum of a parameter's gradients over
its uses (tied weights) to the update phase. Wherever forward operators are cut into layers, gradients then flow from
later layers to earlier ones.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import fx

from alpa_explore.tracing.joint_graph.trace import JointGraph
from alpa_explore.tracing.operators.drafts import Draft, Drafts, TracedTensor

_ADD = torch.ops.aten.add.Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class Phases:
    """The drafts that are needed, by phase, in the order in which they run."""

    forward: tuple[Draft, ...]
    backward: tuple[Draft, ...]
    update: tuple[Draft, ...]
    forward_of: dict[str, Draft]
    """Name of a backward draft -> the forward draft that it belongs to."""


def new_values(joint: JointGraph, drafts: Drafts, written: Sequence[int]) -> dict[int, TracedTensor | None]:
    """Number of a traced tensor that is written -> its new value; None where no forward operator makes one of the same
    form: a cache that grows, a copy of an input, what the backward pass writes."""

    def new_value(number: int) -> TracedTensor | None:
        value = drafts.values.get(joint.written[number]) if number in joint.written else None
        if not isinstance(value, TracedTensor) or value not in drafts.producer or drafts.producer[value].backward:
            return None
        old, new = drafts.tensors[drafts.key(joint.inputs[number])], drafts.tensors[value]
        return value if (old.shape, old.dtype) == (new.shape, new.dtype) else None

    return {number: new_value(number) for number in written}


def assign_phases(
    joint: JointGraph,
    drafts: Drafts,
    loss: TracedTensor,
    gradients: Sequence[TracedTensor],
    written: Sequence[TracedTensor],
) -> Phases:
    """Drop the drafts on which neither the loss nor a gradient nor what is `written` depends, and divide the rest into
    phases."""
    live = _live(drafts, (loss, *gradients, *written))
    sums = _parameter_sums(joint, drafts, live, gradients)
    forward = tuple(d for d in live if not d.backward)
    backward = tuple(d for d in live if d.backward and d.name not in sums)
    update = tuple(d for d in live if d.name in sums)
    return Phases(
        forward=forward,
        backward=backward,
        update=update,
        forward_of=_forward_of(joint, drafts, forward, backward, loss),
    )


def _live(drafts: Drafts, roots: Sequence[TracedTensor]) -> list[Draft]:
    needed = set(roots)
    kept = []
    for draft in reversed(drafts.operators):
        if needed.intersection(draft.outputs):
            kept.append(draft)
            needed.update(draft.inputs)
    return kept[::-1]


def _parameter_sums(
    joint: JointGraph, drafts: Drafts, live: Sequence[Draft], gradients: Sequence[TracedTensor]
) -> set[str]:
    """Names of the additions that form a parameter's gradient: autograd's sums that no backward operator reads. What a
    hook of the parameter does to its gradient is none of them: it is done to that of each microbatch."""
    summing = {n.name for n in joint.module.graph.nodes if n.meta.get("is_gradient_acc") and n.target is _ADD}
    read_by: dict[TracedTensor, list[str]] = {}
    for draft in live:
        for key in draft.inputs:
            read_by.setdefault(key, []).append(draft.name)
    sums: set[str] = set()
    waiting = list(gradients)
    while waiting:
        producer = drafts.producer.get(waiting.pop())
        if producer is None or producer.name not in summing or producer.name in sums:
            continue
        if all(reader in sums for key in producer.outputs for reader in read_by.get(key, ())):
            sums.add(producer.name)
            waiting += producer.inputs
    return sums


def _forward_of(
    joint: JointGraph, drafts: Drafts, forward: Sequence[Draft], backward: Sequence[Draft], loss: TracedTensor
) -> dict[str, Draft]:
    place = {d.name: i for i, d in enumerate(forward)}
    owners = _owners(joint, drafts, place)
    sums = {n.name: sequence for n, sequence in joint.accumulates.items()}
    gradient_sums = {n.name for n in joint.module.graph.nodes if n.meta.get("is_gradient_acc")}
    loss_draft = drafts.producer[loss]
    forward_of: dict[str, Draft] = {}
    for draft in backward:
        sequence = sums.get(draft.name, None if draft.name in gradient_sums else draft.sequence)
        owner = owners.get(sequence) if sequence is not None else None
        producers = [drafts.producer[k] for k in draft.inputs if k in drafts.producer]
        # Gradients flow from later operators to earlier ones: not after an operator whose gradient it reads.
        candidates = [forward_of[m.name] for m in producers if m.name in forward_of] + (
            [] if owner is None else [owner]
        )
        if candidates:
            forward_of[draft.name] = min(candidates, key=lambda d: place[d.name])
        else:
            # Its forward operator was folded away: assign it to the last forward operator that it depends on.
            needed = [m for m in producers if m.name in place]
            forward_of[draft.name] = max(needed, key=lambda d: place[d.name], default=loss_draft)
    return forward_of


def _owners(joint: JointGraph, drafts: Drafts, place: dict[str, int]) -> dict[int, Draft]:
    """Sequence number -> the forward draft of the first node that carries it, which is the one autograd numbered."""
    owners: dict[int, Draft] = {}
    seen: set[int] = set()
    for node in joint.module.graph.nodes:
        sequence = node.meta.get("seq_nr")
        if sequence is None or sequence in seen or node.meta.get("partitioner_tag") != "is_forward":
            continue
        seen.add(sequence)
        draft = _standing_for(drafts, node, place)
        if draft is not None:
            owners[sequence] = draft
    return owners


def _standing_for(drafts: Drafts, node: fx.Node, place: dict[str, int]) -> Draft | None:
    """The forward draft that stands for a node: its own, or the nearest one before it if the node was folded away."""
    value = drafts.values.get(node)
    key = value if isinstance(value, TracedTensor) else next((k for k in value or () if k is not None), None)
    producer = drafts.producer.get(key) if key is not None else None
    while producer is not None and producer.name not in place:
        producer = drafts.producer.get(producer.inputs[0]) if producer.inputs else None
    return producer
