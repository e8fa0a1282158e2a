"""Which drafts a training step needs, in which phase each runs, and which forward operator each backward one follows.

A backward operator carries the sequence number of the forward operator that autograd differentiated. Sums of gradients
do not: the whole sum follows the producer of the tensor whose gradient it is, a sum of some of its gradients the
earliest operator that made one of them, and the sum of a parameter's gradients over its uses (tied weights) belongs to
the update. So wherever forward operators are cut into layers, gradients flow from later layers to earlier ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import fx

from alpa_explore.tracing.joint_graph.trace import JointGraph
from alpa_explore.tracing.operators.drafts import Draft, Drafts, Key


@dataclass(frozen=True, slots=True, kw_only=True)
class Phases:
    """The drafts that are needed, in the order in which they run; `ties`: name of a backward draft -> forward draft."""

    forward: tuple[Draft, ...]
    backward: tuple[Draft, ...]
    update: tuple[Draft, ...]
    ties: dict[str, Draft]


def assign_phases(joint: JointGraph, drafts: Drafts, loss: Key, gradients: Sequence[Key]) -> Phases:
    """Drop what neither the loss nor a gradient needs and divide the rest into phases."""
    live = _live(drafts, (loss, *gradients))
    sums = _parameter_sums(joint, drafts, live, gradients)
    forward = tuple(d for d in live if not d.backward)
    backward = tuple(d for d in live if d.backward and d.name not in sums)
    update = tuple(d for d in live if d.name in sums)
    return Phases(forward=forward, backward=backward, update=update, ties=_ties(joint, drafts, forward, backward, loss))


def _live(drafts: Drafts, wanted: Sequence[Key]) -> list[Draft]:
    needed = set(wanted)
    kept = []
    for one in reversed(drafts.operators):
        if needed.intersection(one.outputs):
            kept.append(one)
            needed.update(one.inputs)
    return kept[::-1]


def _parameter_sums(joint: JointGraph, drafts: Drafts, live: Sequence[Draft], gradients: Sequence[Key]) -> set[str]:
    """Names of the additions that end in a parameter's gradient: autograd's sums that no backward operator reads."""
    summing = {n.name for n in joint.module.graph.nodes if n.meta.get("is_gradient_acc")}
    read_by: dict[Key, list[str]] = {}
    for one in live:
        for key in one.inputs:
            read_by.setdefault(key, []).append(one.name)
    found: set[str] = set()
    waiting = list(gradients)
    while waiting:
        made = drafts.maker.get(waiting.pop())
        if made is None or made.name not in summing or made.name in found:
            continue
        if all(reader in found for key in made.outputs for reader in read_by.get(key, ())):
            found.add(made.name)
            waiting += made.inputs
    return found


def _ties(
    joint: JointGraph, drafts: Drafts, forward: Sequence[Draft], backward: Sequence[Draft], loss: Key
) -> dict[str, Draft]:
    place = {d.name: i for i, d in enumerate(forward)}
    owners = _owners(joint, drafts, place)
    sums = {n.name: sequence for n, sequence in joint.accumulates.items()}
    untrusted = {n.name for n in joint.module.graph.nodes if n.meta.get("is_gradient_acc")}
    loss_draft = drafts.maker[loss]
    ties: dict[str, Draft] = {}
    for one in backward:
        sequence = sums.get(one.name, None if one.name in untrusted else one.sequence)
        owner = owners.get(sequence) if sequence is not None else None
        makers = [drafts.maker[k] for k in one.inputs if k in drafts.maker]
        # Gradients flow from later operators to earlier ones: never behind one whose gradient it reads.
        found = [ties[m.name] for m in makers if m.name in ties] + ([] if owner is None else [owner])
        if found:
            ties[one.name] = min(found, key=lambda d: place[d.name])
        else:
            # Autograd ran it for an operator that folded away: it goes with the last one it depends on.
            needed = [m for m in makers if m.name in place]
            ties[one.name] = max(needed, key=lambda d: place[d.name], default=loss_draft)
    return ties


def _owners(joint: JointGraph, drafts: Drafts, place: dict[str, int]) -> dict[int, Draft]:
    """Sequence number -> the forward draft that autograd gave it to: the first node that carries it."""
    owners: dict[int, Draft] = {}
    seen: set[int] = set()
    for node in joint.module.graph.nodes:
        sequence = node.meta.get("seq_nr")
        if sequence is None or sequence in seen or node.meta.get("partitioner_tag") != "is_forward":
            continue
        seen.add(sequence)
        found = _standing_for(drafts, node, place)
        if found is not None:
            owners[sequence] = found
    return owners


def _standing_for(drafts: Drafts, node: fx.Node, place: dict[str, int]) -> Draft | None:
    """The forward draft in use that stands for a node: its own, or the nearest one before it if it folded away."""
    value = drafts.values.get(node)
    key = value if isinstance(value, Key) else next((k for k in value or () if k is not None), None)
    made = drafts.maker.get(key) if key is not None else None
    while made is not None and made.name not in place:
        made = drafts.maker.get(made.inputs[0]) if made.inputs else None
    return made
