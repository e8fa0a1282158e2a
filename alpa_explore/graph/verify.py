"""The invariants of every training graph; the tracer and the plan reader check them on each graph they make."""

from alpa_explore.graph.graph import TrainingGraph
from alpa_explore.graph.operator import Phase, tensor_refs

_ORDER = {Phase.FORWARD: 0, Phase.BACKWARD: 1, Phase.UPDATE: 2}


def verify(graph: TrainingGraph) -> TrainingGraph:
    """Return `graph` if it is well formed; AssertionError (a bug of this library, never the user's fault) names the
    invariant that does not hold."""
    available: set[int] = {t.index for t in graph.tensors if t.producer is None}
    phase = 0
    for position, tensor in enumerate(graph.tensors):
        assert tensor.index == position, f"tensor {tensor.name} has index {tensor.index} at position {position}"
    for place, operator in enumerate(graph.operators):
        where = f"operator {place} ({operator.name})"
        assert operator.index == place, f"{where} has index {operator.index}"
        assert _ORDER[operator.phase] >= phase, f"{where}: phases are out of order"
        phase = _ORDER[operator.phase]
        refs = tensor_refs(operator.arguments) + tensor_refs(tuple(v for _, v in operator.keywords))
        assert refs == operator.inputs, f"{where}: inputs {operator.inputs} are not those of its arguments {refs}"
        for read in operator.inputs:
            assert read in available, f"{where} reads tensor {read} before it is produced"
        for written in operator.outputs:
            assert graph.tensors[written].producer == place, f"{where}: tensor {written} names another producer"
            available.add(written)
        if operator.phase is Phase.BACKWARD:
            assert operator.forward is not None, f"{where}: a backward operator without its forward operator"
            assert graph.operators[operator.forward].phase is Phase.FORWARD, f"{where}: tied to a non-forward operator"
            for read in operator.inputs:
                producer = graph.tensors[read].producer
                gradient_of = operator.forward if producer is None else graph.operators[producer].forward
                # So that, wherever forward operators are cut into stages, no gradient flows to a later stage.
                assert gradient_of is None or gradient_of >= operator.forward, (
                    f"{where} reads a gradient from before its place"
                )
        assert min(operator.flops, operator.bytes_accessed) >= 0, f"{where}: negative counts"
    for parameter in graph.parameters:
        update = graph.operators[parameter.update]
        assert update.phase is Phase.UPDATE, f"parameter {parameter.name}: update is a {update.phase.value} operator"
        assert update.inputs[:2] == (parameter.tensor, parameter.gradient), f"parameter {parameter.name}: update inputs"
    for one in graph.written:
        if one.tensor is not None and one.value is not None:
            old, new = graph.tensors[one.tensor], graph.tensors[one.value]
            assert old.producer is None, f"{one.name}: the old value is made by an operator"
            assert new.producer is not None, f"{one.name}: no operator makes the new value"
            assert graph.operators[new.producer].phase is Phase.FORWARD, f"{one.name}: not made in the forward pass"
            assert (old.shape, old.dtype) == (new.shape, new.dtype), f"{one.name}: the new value has another form"
    assert graph.loss in available, "no operator produces the loss"
    return graph
