"""A scan on a shard: the same scan, whose body runs on the shard, operator by operator."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from alpa_explore.graph import Operator, Tensor
from alpa_explore.graph.loops import LoopBody, body_of, body_tensor, dump_body, renumbered
from alpa_explore.sharding.local.shard import Shard
from alpa_explore.sharding.local.steps import LocalCall, StepWriter
from alpa_explore.sharding.scans import Division, divisions
from alpa_explore.sharding.spec import REPLICATE, local_shape
from alpa_explore.sharding.strategy import Strategy

Localize = Callable[[Operator, Sequence[Tensor], Strategy, Sequence[int], Sequence[int]], LocalCall]
"""`local_call.localize`."""


def scan(shard: Shard, steps: StepWriter, localize: Localize) -> LocalCall:
    """(carried, stacked, shared, body, backward, reverse): the body is that of the device."""
    text = steps.arguments[3]
    assert isinstance(text, str)
    of_factor = {d.factor: d for d in divisions(text)}
    chosen = [of_factor.get(factor) for factor in shard.strategy.factors]
    if any(chosen):
        body = _Body(shard, body_of(steps.arguments), chosen).written(localize)
        steps.arguments = (*steps.arguments[:3], dump_body(body), *steps.arguments[4:])
    return steps.finish(steps.call_all(shard.operator.kind, steps.arguments, steps.keywords, len(shard.outputs)))


class _Body:
    """Writes the body of a device; `chosen` is the division of each mesh axis, None where nothing is divided."""

    def __init__(self, shard: Shard, body: LoopBody, chosen: Sequence[Division | None]) -> None:
        self._shard, self._body, self._chosen = shard, body, chosen
        first = sum(body.inputs)
        self._number = {tensor: tensor for tensor in range(first)}
        self._tensors = [self._local(body.tensors[tensor], tensor) for tensor in range(first)]
        self._operators: list[Operator] = []

    def written(self, localize: Localize) -> LoopBody:
        """All operators on the shard."""
        for place, operator in enumerate(self._body.operators):
            strategy = self._strategy(place, operator)
            call = localize(operator, self._body.tensors, strategy, self._shard.mesh_shape, self._shard.coordinate)
            self._append(operator, call)
        made = (
            tuple(self._number[t] for t in part) for part in (self._body.carried, self._body.stacked, self._body.summed)
        )
        carried, stacked, summed = made
        return replace(
            self._body,
            tensors=tuple(self._tensors),
            operators=tuple(self._operators),
            carried=carried,
            stacked=stacked,
            summed=summed,
        )

    def _strategy(self, place: int, operator: Operator) -> Strategy:
        splits = [None if d is None else d.operators[place] for d in self._chosen]

        def specs(count: int, side: str) -> tuple[tuple[int, ...], ...]:
            return tuple(tuple(REPLICATE if s is None else getattr(s, side)[i] for s in splits) for i in range(count))

        return Strategy(
            tuple("-" if s is None else s.factor for s in splits),
            specs(len(operator.inputs), "inputs"),
            specs(len(operator.outputs), "outputs"),
            1.0,
            ((),) * len(splits),
        )

    def _append(self, operator: Operator, call: LocalCall) -> None:
        """The steps of an operator, whose values become tensors of the body."""
        value = dict(enumerate(self._number[t] for t in operator.inputs))
        of_output = dict(zip(call.outputs, operator.outputs, strict=True))
        for step in call.steps:
            assert isinstance(step, Operator), "a split of a body exchanges nothing"
            for made in step.outputs:
                value[made] = len(self._tensors)
                whole = self._body.tensors[of_output.get(made, operator.outputs[0])]
                self._tensors.append(self._local(whole, len(self._tensors)))
            self._operators.append(renumbered(step, len(self._operators), value))
        self._number.update((tensor, value[made]) for made, tensor in of_output.items())

    def _local(self, whole: Tensor, number: int) -> Tensor:
        spec = tuple(REPLICATE if d is None else d.placements.get(whole.index, REPLICATE) for d in self._chosen)
        return body_tensor(number, local_shape(spec, whole.shape, self._shard.mesh_shape), whole.dtype)
