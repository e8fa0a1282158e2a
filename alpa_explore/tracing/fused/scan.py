"""torch's scan as one operator, forward and backward: the operators of a step (`graph.loops`), again and again.

The backward pass is a scan too, from the last step to the first, with a body of its own: it carries the gradients of
what is carried, reads what was carried before each step (the forward pass keeps it), and computes the rest of a step
again. `torch.ops.alpa_explore.scan` exists once this module is imported.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from alpa_explore.graph import Symbol
from alpa_explore.graph.loops import LoopBody, load_body
from alpa_explore.tracing.custom import operator
from alpa_explore.tracing.symbols import called, from_symbol, to_torch

_Tensors = Sequence[Tensor]


def _shapes(
    carried: _Tensors, stacked: _Tensors, shared: _Tensors, body: str, backward: str, reverse: bool
) -> list[Tensor]:
    step, like = load_body(body), stacked[0]

    def empty(tensor: int, *before: int) -> Tensor:
        made = step.tensors[tensor]
        dtype = from_symbol(Symbol("dtype", made.dtype))
        assert isinstance(dtype, torch.dtype)
        return like.new_empty((*before, *made.shape), dtype=dtype)

    return [
        *(empty(t) for t in step.carried),
        *(empty(t, len(like)) for t in step.stacked),
        *(empty(t) for t in step.summed),
    ]


@operator(_shapes)
def scan(
    carried: _Tensors, stacked: _Tensors, shared: _Tensors, body: str, backward: str, reverse: bool
) -> list[Tensor]:
    """What is carried after the last step, the stacked outputs [steps, …], the sums over all steps.

    `stacked` are [steps, …]. For the backward pass the last of the stacked outputs are what was carried before each
    step; `backward` is its body, and empty where there is none.
    """
    step, carry, order = load_body(body), list(carried), range(len(stacked[0]))
    made: list[list[Tensor]] = [[] for _ in step.stacked]
    sums: list[Tensor] = []
    for place in reversed(order) if reverse else order:
        values = dict(enumerate((*carry, *(x[place] for x in stacked), *shared)))
        _run(step, values)
        carry = [values[t] for t in step.carried]
        for entries, tensor in zip(made, step.stacked, strict=True):
            entries.append(values[tensor])
        addends = [values[t] for t in step.summed]
        sums = [a + b for a, b in zip(sums, addends, strict=True)] if sums else addends
    whole = [torch.stack(entries[::-1] if reverse else entries) for entries in made]
    # An output must be no input and no other output.
    return [*(_own(t) for t in carry), *whole, *(_own(t) for t in sums)]


def _run(body: LoopBody, values: dict[int, Tensor]) -> None:
    """Add the results of one step to its inputs."""
    for call in body.operators:
        keywords = {name: to_torch(a, values) for name, a in call.keywords}
        if not call.inputs:
            keywords["device"] = values[0].device
        made = called(call.kind, [to_torch(a, values) for a in call.arguments], keywords)
        values.update(zip(call.outputs, made, strict=True))


def _own(tensor: Tensor) -> Tensor:
    return tensor.clone(memory_format=torch.contiguous_format)


def _keep(ctx: Any, inputs: tuple[Any, ...], output: list[Tensor]) -> None:
    carried, stacked, shared, _, ctx.backward, ctx.reverse = inputs
    ctx.counts = len(carried), len(stacked), len(shared)
    before = _kept(ctx.backward, len(carried))
    results, kept = output[: len(output) - len(before)], output[len(output) - len(before) :]
    ctx.save_for_backward(*carried, *stacked, *shared, *output)
    ctx.mark_non_differentiable(*kept, *(t for t in results if not t.is_floating_point()))
    ctx.set_materialize_grads(False)


def _kept(backward: str, carried: int) -> list[int]:
    """Which of what is carried the backward pass reads, as it was before each step; the last outputs are these."""
    return [place for place in load_body(backward).taken if place < carried] if backward else []


def _differentiate(ctx: Any, gradients: Sequence[Tensor | None]) -> tuple[Any, ...]:
    carries, stacks, _ = ctx.counts
    inputs, output = ctx.saved_tensors[: sum(ctx.counts)], ctx.saved_tensors[sum(ctx.counts) :]
    before = _kept(ctx.backward, carries)
    results = output[: len(output) - len(before)]
    given = [
        torch.zeros_like(made) if gradient is None else gradient
        for made, gradient in zip(results, gradients, strict=False)
        if made.is_floating_point()
    ]
    last = sum(t.is_floating_point() for t in results[:carries])
    own, stacked, shared = inputs[:carries], inputs[carries : carries + stacks], inputs[carries + stacks :]
    was = dict(zip(before, output[len(results) :], strict=True))
    # Of what is carried, that of each step; the body reads none that was not kept.
    possible, body = [*(was.get(i) for i in range(len(own))), *stacked, *given[last:], *shared], load_body(ctx.backward)
    taken = [possible[place] for place in body.taken]
    made = torch.ops.alpa_explore.scan(
        given[:last], taken[: body.inputs[1]], taken[body.inputs[1] :], ctx.backward, "", not ctx.reverse
    )
    found = dict(zip(body.gradients, made, strict=True))
    each = [found.get(place) for place in range(len(inputs))]
    return each[:carries], each[carries : carries + stacks], each[carries + stacks :], None, None, None


scan.register_autograd(_differentiate, setup_context=_keep)
