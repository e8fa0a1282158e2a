"""What the forward pass writes: running statistics, moving averages, counters, caches.

A run writes those whose new value a forward operator makes (`Written.value`), microbatch by microbatch, with statistics
of the whole microbatch however it is divided. It leaves others at their first values: a cache that grows, what one
stage of a pipeline writes and another reads. That changes nothing where no loss and no gradient reads them. Where one
does, later steps of a run would differ from training the module: those buffers are `carried`.
"""

from collections.abc import Collection

from alpa_explore.graph.counts import packet
from alpa_explore.graph.graph import TrainingGraph
from alpa_explore.graph.operator import Operator, Phase, tensor_refs

_STATISTICS = {"aten._native_batch_norm_legit_functional": (5, (3, 4)), "aten.native_batch_norm_backward": (7, (3, 4))}
"""Operator -> the argument that says whether it is in training mode, and those of the running statistics."""
_RESULTS = 3
"""Outputs of either that do not depend on the running statistics in training mode; further ones are new statistics."""
_SHOWN = 3


def unwritten(graph: TrainingGraph) -> tuple[str, ...]:
    """The tensors that the forward pass writes and no run does, by name."""
    return tuple(one.name for one in graph.written if one.value is None)


def carried(graph: TrainingGraph, frozen: Collection[str]) -> tuple[str, ...]:
    """Those of the tensors that the forward pass writes and a run leaves (`frozen`) on which the loss or a gradient
    depends, by name."""
    needed = {graph.loss, *(parameter.gradient for parameter in graph.parameters)}
    for operator in reversed(graph.operators):
        if operator.phase is not Phase.UPDATE or operator.kind.startswith("aten."):  # sums of gradients, no steps
            needed |= _needed(operator, needed)
    names = {graph.tensors[tensor].name for tensor in needed if graph.tensors[tensor].producer is None}
    return tuple(tensor.name for tensor in graph.written if tensor.name in names and tensor.name in frozen)


def unbroken(graph: TrainingGraph) -> tuple[tuple[str, int, int], ...]:
    """(name, first, last) of the written tensors on which the loss or a gradient depends: the run of forward operators,
    by position, that read it and make its new value. They belong in one stage: the next microbatch reads what this one
    wrote."""
    names = carried(graph, [one.name for one in graph.written]) if graph.written else ()
    runs = []
    for one in graph.written:
        if one.name in names and one.tensor is not None and one.value is not None:
            makes = graph.tensors[one.value].producer
            uses = (*graph.readers.get(one.tensor, ()), *(() if makes is None else (makes,)))
            forward = [o for o in uses if graph.operators[o].phase is Phase.FORWARD]
            if forward and min(forward) < max(forward):
                runs.append((one.name, min(forward), max(forward)))
    return tuple(runs)


def written_warnings(graph: TrainingGraph) -> tuple[str, ...]:
    """What a plan says about the tensors that the forward pass writes and a run does not."""
    frozen = unwritten(graph)
    needed = carried(graph, frozen)
    others = [name for name in frozen if name not in needed]
    warnings = []
    if needed:
        warnings.append(
            f"the forward pass writes {listed(needed)}, on which later losses depend, in a form that a run cannot"
            " carry on (a cache that grows, a copy of an input), so it is refused unless --frozen-buffers is given"
        )
    if others:
        warnings.append(
            f"the forward pass writes {listed(others)}, which no loss or gradient reads; a run leaves what is written"
            " there at its first values"
        )
    return tuple(warnings)


def listed(names: tuple[str, ...] | list[str]) -> str:
    """'2 buffers (a, b)'; of many the first ones."""
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return f"{len(names)} {'buffer' if len(names) == 1 else 'buffers'} ({', '.join(names[:_SHOWN])}{more})"


def _needed(operator: Operator, needed: set[int]) -> set[int]:
    """The inputs of an operator on which those of its outputs depend that are `needed`."""
    if needed.isdisjoint(operator.outputs):
        return set()
    training, statistics = _STATISTICS.get(packet(operator.kind), (-1, ()))
    if training < 0 or operator.arguments[training] is not True or not needed.isdisjoint(operator.outputs[_RESULTS:]):
        return set(operator.inputs)
    arguments = [a for place, a in enumerate(operator.arguments) if place not in statistics]
    return {tensor for argument in arguments for tensor in tensor_refs(argument)}
