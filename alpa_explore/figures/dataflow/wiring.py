"""Which operators read what from which, and the collectives on the way.

A tensor has the name of the operator that writes it, with the number of the output behind a point where there are
several ('native_layer_norm.0'). Operators that take no time and move nothing (views) are passed through: an edge leads
from the operator before them to the one behind them.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from alpa_explore.plans.records import PlanOperator, PlanStage

ENTERS, WEIGHT, LEAVES = "enters", "weight", "leaves"
"""Ends of an edge that are no operator: a tensor that enters the stage, a stored weight, one that leaves the stage."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Collective:
    """What happens to a tensor between its writer and its reader."""

    kinds: str
    """'all-gather', or several: 'reduce-scatter, all-gather'."""
    seconds: float
    text: str
    """The line of the plan about it."""
    once: bool = False
    """Whether it takes place once an iteration, not in every microbatch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Read:
    """An operator reads a tensor of another one, or of none (`ENTERS`, `WEIGHT`); or a tensor `LEAVES`."""

    tensor: str
    source: str
    """Name of the operator that wrote it; '' where none of the stage did."""
    target: str
    """Name of the operator that reads it; '' where it leaves the stage."""
    end: str = ""
    """What stands in place of an operator; '' where there are two."""
    spec: str = ""
    """As it is read."""
    shape: tuple[int, ...] = ()
    collective: Collective | None = None


def is_view(operator: PlanOperator) -> bool:
    """Whether it takes no time and moves nothing, so that the graph can leave it out."""
    return operator.compute_seconds == 0 and operator.communication_seconds == 0 and len(operator.input_names) == 1


def stage_reads(stage: PlanStage) -> tuple[Read, ...]:
    """All that the operators of a stage read and that leaves it with a collective, in execution order; views are left
    out. Empty where the plan file does not hold the names of tensors."""
    by_name = {o.name: o for o in stage.operators}
    weights = {t.name for t in stage.tensors if t.role == "weight"}
    reads: list[Read] = []
    for operator in stage.operators:
        if is_view(operator):
            continue
        collectives = _collectives(operator)
        for place, tensor in enumerate(operator.input_names):
            writer, origin = _writer(tensor, by_name)
            reads.append(
                Read(
                    tensor=tensor,
                    source=writer.name if writer is not None else "",
                    target=operator.name,
                    end="" if writer is not None else WEIGHT if origin in weights else ENTERS,
                    spec=operator.inputs[place] if place < len(operator.inputs) else "",
                    shape=operator.input_shapes[place] if place < len(operator.input_shapes) else (),
                    collective=collectives.pop(tensor, None),
                )
            )
        reads += [
            Read(tensor=tensor, source=operator.name, target="", end=LEAVES, collective=collective)
            for tensor, collective in collectives.items()
        ]
    return tuple(reads)


def views_of(stage: PlanStage) -> dict[str, list[PlanOperator]]:
    """Operator -> the views that the graph draws as part of it: those of its output; a view of what enters the stage
    or of a weight belongs to the first operator that reads it."""
    by_name = {o.name: o for o in stage.operators}
    found: dict[str, list[PlanOperator]] = {}
    orphans: dict[str, PlanOperator] = {}
    for operator in stage.operators:
        if is_view(operator):
            writer, _ = _writer(operator.name, by_name)
            if writer is not None:
                found.setdefault(writer.name, []).append(operator)
            else:
                orphans[operator.name] = operator
            continue
        for tensor in operator.input_names:
            while (name := writer_name(tensor, by_name)) and is_view(by_name[name]):
                if name in orphans:
                    found.setdefault(operator.name, []).append(orphans.pop(name))
                tensor = by_name[name].input_names[0]
    return found


def writer_name(tensor: str, names: Mapping[str, PlanOperator]) -> str:
    """The operator that writes a tensor: 'split.1' -> 'split'; '' where none of these does."""
    if tensor in names:
        return tensor
    name, _, place = tensor.rpartition(".")
    return name if place.isdecimal() and name in names else ""


def _writer(tensor: str, by_name: Mapping[str, PlanOperator]) -> tuple[PlanOperator | None, str]:
    """The first operator before `tensor` that is no view, and the name of the tensor behind it."""
    while name := writer_name(tensor, by_name):
        if not is_view(by_name[name]):
            return by_name[name], tensor
        tensor = by_name[name].input_names[0]
    return None, tensor


def _collectives(operator: PlanOperator) -> dict[str, Collective]:
    """Tensor -> what moves it; of a file of an earlier version all together, on the operator's first input."""
    texts, update = operator.communication, operator.phase == "update"
    if operator.collective_tensors:
        found: dict[str, Collective] = {}
        columns = (operator.collective_tensors, operator.collective_kinds, operator.collective_seconds, texts)
        for tensor, kinds, seconds, text in zip(*columns, strict=True):
            before = found.get(tensor)
            found[tensor] = Collective(
                kinds=kinds if before is None else f"{before.kinds}, {kinds}",
                seconds=seconds + (before.seconds if before is not None else 0.0),
                text=text if before is None else f"{before.text}\n{text}",
                # An update moves its weight once an iteration, and its gradient unless every microbatch scatters it.
                once=update and not (tensor in operator.input_names and operator.stored_seconds),
            )
        return found
    if not operator.communication_seconds or not operator.input_names:
        return {}
    together = Collective(
        kinds="collectives", seconds=operator.communication_seconds, text="\n".join(texts), once=update
    )
    return {operator.input_names[0]: together}
