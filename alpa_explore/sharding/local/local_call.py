"""How an operator runs on one shard: the single definition for the proof of a rule, the interpreter and the runtime.

Most operators run unchanged on their local tensors. The others need one of these changes: size arguments take the local
extent; an addend that must count once is left out on all but the first device of an axis; a local mean is divided by
the number of shards; the lookup in a sharded table is masked; a shard of attention knows its place in the whole; the
statistics of a batch norm, the rows of a sharded softmax and the divisor of a loss are combined over devices in the
middle of the operator (`synced`); the body of a scan runs on the shard, operator by operator.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import cast

from alpa_explore.graph import Argument, Operator, Tensor
from alpa_explore.graph.loops import SCAN, LoopBody, body_of, body_tensor, dump_body, renumbered
from alpa_explore.sharding.local.context import attention, attention_backward
from alpa_explore.sharding.local.routed import experts, experts_backward
from alpa_explore.sharding.local.steps import LocalCall, LocalCollective, LocalStep, Reduction, Shard, StepWriter
from alpa_explore.sharding.local.synced import (
    batch_norm,
    batch_norm_backward,
    nll_backward,
    nll_forward,
    nll_over,
    softmax,
    softmax_backward,
)
from alpa_explore.sharding.rules.elementwise import RANDOM
from alpa_explore.sharding.rules.factors import kinds
from alpa_explore.sharding.rules.products import RESAMPLING_BACKWARD
from alpa_explore.sharding.scans import Division, divisions
from alpa_explore.sharding.spec import REPLICATE, local_shape
from alpa_explore.sharding.strategy import Strategy


def _scan(shard: Shard, steps: StepWriter) -> LocalCall:
    """(carried, stacked, shared, body, backward, reverse): the body is that of the device."""
    text = steps.arguments[3]
    assert isinstance(text, str)
    of_factor = {d.factor: d for d in divisions(text)}
    chosen = [of_factor.get(factor) for factor in shard.strategy.factors]
    if any(chosen):
        body = _Body(shard, body_of(steps.arguments), chosen).written()
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

    def written(self) -> LoopBody:
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


__all__ = ["LocalCall", "LocalCollective", "LocalStep", "Reduction", "localize"]


def localize(
    operator: Operator,
    tensors: Sequence[Tensor],
    strategy: Strategy,
    mesh_shape: Sequence[int],
    coordinate: Sequence[int],
    *,
    over_total: bool = False,
) -> LocalCall:
    """The steps that the device at `coordinate` of the mesh runs under `strategy`; `tensors` are those of the graph.
    `over_total`: of a mean loss whose divisor is given, as one more input value after those of the operator."""
    shard = Shard(
        operator=operator,
        inputs=tuple(tensors[t] for t in operator.inputs),
        outputs=tuple(tensors[t] for t in operator.outputs),
        strategy=strategy,
        mesh_shape=tuple(mesh_shape),
        coordinate=tuple(coordinate),
    )
    local = nll_over if over_total else LOCAL_RULES.get(operator.kind, _call)
    return local(shard, StepWriter(operator))


_Local = Callable[[Shard, StepWriter], LocalCall]
_Changed = Callable[[Shard, StepWriter], LocalCall | None]


def _call(shard: Shard, steps: StepWriter, arguments: tuple[Argument, ...] | None = None) -> LocalCall:
    """The operator itself, with `arguments` in place of its own where given."""
    chosen = steps.arguments if arguments is None else arguments
    return steps.finish(steps.call_all(shard.operator.kind, chosen, steps.keywords, len(shard.outputs)))


def _where_needed(changed: _Changed) -> _Local:
    """The operator itself where `changed` returns None."""
    return lambda shard, steps: changed(shard, steps) or _call(shard, steps)


def _sized(place: int) -> _Local:
    """The argument at `place` is the shape of the output."""

    def local(shard: Shard, steps: StepWriter) -> LocalCall:
        return _call(shard, steps, replaced(steps.arguments, place, shard.output_shape(0)))

    return local


def _squeeze(shard: Shard, steps: StepWriter) -> LocalCall:
    """As a view: a sharded dim whose local size is 1 must not disappear."""
    return steps.finish([steps.call("aten.view.default", steps.arguments[0], shard.output_shape(0))])


_SIZE_OF_RANDOM = {"aten.randint.default": 1, "aten.randint.low": 2}
"""Where the size is among the arguments; 0 for other kinds."""


def _random(shard: Shard, steps: StepWriter) -> LocalCall:
    """rand, dropout: the numbers depend on the coordinate along the axes that shard the output, and on no other."""
    arguments = steps.arguments
    if not shard.inputs:
        arguments = replaced(arguments, _SIZE_OF_RANDOM.get(shard.operator.kind, 0), shard.output_shape(0))
    made = steps.call_all(shard.operator.kind, arguments, steps.keywords, len(shard.outputs))
    return steps.finish(made, draws=tuple(a for a, p in enumerate(shard.strategy.outputs[0]) if p >= 0))


def _biased_product(shard: Shard, steps: StepWriter) -> LocalCall:
    """addmm, baddbmm with K sharded: beta = 0 leaves the bias out on all devices but one."""
    if not shard.adds(0):
        steps.keywords["beta"] = 0
    return _call(shard, steps)


def _convolution(shard: Shard, steps: StepWriter) -> LocalCall:
    """The number of groups follows the local channels; with input channels sharded one device adds the bias."""
    arguments = replaced(steps.arguments, 8, _groups(shard, 8))
    if len(shard.inputs) > 2 and not shard.adds(2):
        arguments = replaced(arguments, 2, None)
    return _call(shard, steps, arguments)


def _convolution_backward(shard: Shard, steps: StepWriter) -> LocalCall:
    arguments = replaced(steps.arguments, 9, _groups(shard, 9))
    mask = cast("tuple[bool, ...]", arguments[10])
    if mask[2]:
        arguments = replaced(arguments, 3, (shard.input_shape(0)[1],))
    return _call(shard, steps, arguments)


def _groups(shard: Shard, place: int) -> int:
    """The local number of groups: with more than one group, channels of x are sharded only together with the groups."""
    groups = cast(int, shard.operator.arguments[place])
    x = 1 if place == 9 else 0
    return groups if groups == 1 else groups * shard.input_shape(x)[1] // shard.inputs[x].shape[1]


def _group_norm(shard: Shard, steps: StepWriter) -> LocalCall:
    """Forward and backward end with N, C, H·W, groups and one more argument; only samples (N) are sharded."""
    return _call(shard, steps, replaced(steps.arguments, len(steps.arguments) - 5, shard.input_shape(0)[0]))


def _mean(shard: Shard, steps: StepWriter) -> LocalCall:
    """Shards are of equal size: the mean is the sum of the local means, each divided by the number of shards."""
    local_mean = steps.call(shard.operator.kind, *steps.arguments, **steps.keywords)
    shards = math.prod(shard.mesh_shape[axis] for axis in shard.summed_axes())
    return steps.finish([local_mean if shards == 1 else steps.call("aten.div.Scalar", local_mean, shards)])


def _embedding(shard: Shard, steps: StepWriter) -> LocalCall:
    """(weight, indices): with rows sharded, indices of rows on other devices give zeros."""
    rows = shard.input_shape(0)[0]
    if rows == shard.inputs[0].shape[0]:
        return _call(shard, steps)
    weight, indices = steps.arguments[:2]
    local, foreign = _local_rows(steps, indices, shard.block(shard.strategy.inputs[0], 0) * rows, rows)
    looked_up = steps.call("aten.embedding.default", weight, local)
    return steps.finish([steps.call("aten.masked_fill.Scalar", looked_up, foreign, 0)])


def _embedding_backward(shard: Shard, steps: StepWriter) -> LocalCall:
    """(dy, indices, rows, padding, …): with rows sharded, only the gradients of local rows are added."""
    rows = shard.output_shape(0)[0]
    if rows == shard.outputs[0].shape[0]:
        return _call(shard, steps)
    first = shard.block(shard.strategy.outputs[0], 0) * rows
    gradient, indices = steps.arguments[:2]
    padding = cast(int, steps.arguments[3]) - first
    local, foreign = _local_rows(steps, indices, first, rows)
    masked = steps.call("aten.masked_fill.Scalar", gradient, foreign, 0)
    arguments = (masked, local, rows, padding if 0 <= padding < rows else -1, *steps.arguments[4:])
    return steps.finish([steps.call(shard.operator.kind, *arguments)])


def _local_rows(steps: StepWriter, indices: Argument, first: int, rows: int) -> tuple[Argument, Argument]:
    """(indices relative to the device's first row, a mask [..., 1] of those on other devices, which are set to 0)."""
    shifted, foreign = steps.relative(indices, first, rows)
    local = steps.call("aten.masked_fill.Scalar", shifted, foreign, 0)
    return local, steps.call("aten.unsqueeze.default", foreign, -1)


def _added_to(shard: Shard, steps: StepWriter) -> LocalCall:
    """index_put, index_add with sharded indices: the tensor that is added to must count once."""
    start = steps.call("aten.alias.default" if shard.adds(0) else "aten.zeros_like.default", steps.arguments[0])
    return _call(shard, steps, replaced(steps.arguments, 0, start))


def replaced(arguments: tuple[Argument, ...], place: int, value: Argument) -> tuple[Argument, ...]:
    """`arguments` with `value` at position `place`."""
    return (*arguments[:place], value, *arguments[place + 1 :])


LOCAL_RULES: dict[str, _Local] = {
    **kinds("view _unsafe_view reshape expand new_zeros new_ones new_full new_empty", _sized(1)),
    **kinds("select_backward slice_backward", _sized(1)),
    **kinds("full zeros ones empty.memory_format", _sized(0)),
    **kinds(RESAMPLING_BACKWARD, _sized(2)),
    **kinds("squeeze squeeze.dim squeeze.dims", _squeeze),
    **dict.fromkeys(RANDOM, _random),
    **kinds("addmm baddbmm", _biased_product),
    **kinds("convolution", _convolution),
    **kinds("convolution_backward", _convolution_backward),
    **kinds("native_group_norm native_group_norm_backward", _group_norm),
    **kinds("mean mean.dim", _mean),
    **kinds("embedding", _embedding),
    **kinds("embedding_dense_backward", _embedding_backward),
    **kinds("index_put index_add", _added_to),
    **kinds("attention", attention, "alpa_explore"),
    **kinds("attention_backward", attention_backward, "alpa_explore"),
    SCAN: _scan,
    **kinds("experts", experts, "alpa_explore"),
    **kinds("experts_backward", experts_backward, "alpa_explore"),
    **kinds("_native_batch_norm_legit.no_stats _native_batch_norm_legit_functional", _where_needed(batch_norm)),
    **kinds("native_batch_norm_backward", _where_needed(batch_norm_backward)),
    **kinds("_softmax _log_softmax _safe_softmax", _where_needed(softmax)),
    **kinds("_softmax_backward_data _log_softmax_backward_data", _where_needed(softmax_backward)),
    **kinds("nll_loss_forward nll_loss2d_forward", _where_needed(nll_forward)),
    **kinds("nll_loss_backward nll_loss2d_backward", _where_needed(nll_backward)),
}
"""Operator kinds that do not run unchanged on a shard, with how they run."""
