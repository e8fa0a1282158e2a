"""What the host needs to issue work: with next to no work in each operator, its time is all that is left.

On a GPU the clock stops before the device is done: the host only queues. On a CPU the operator also runs, on four
numbers. Seconds of one:

    operator            elementwise, nothing recorded for a backward pass
    recorded_operator   the same with its autograd node
    backward_operator   the backward pass of that node (the engine, one kernel or two)
    product             a linear layer's product as a function, recorded
    module              the same through an nn.Linear
    collective          an asynchronous all-reduce; measured with two ranks or more
    optimizer           one parameter of a fused or for-each Adam, among many
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor

from alpa_explore.calibration import tuning
from alpa_explore.calibration.measuring.clock import Clock


def host_seconds(clock: Clock) -> dict[str, float]:
    """Seconds of the host for each kind of call above."""
    x = torch.ones(2, 2, device=clock.kind)
    w = torch.ones(2, 2, device=clock.kind, requires_grad=True)
    linear = torch.nn.Linear(2, 2, bias=False, device=clock.kind)
    found = {
        "operator": _issue(clock, lambda: x * x),
        "recorded_operator": _issue(clock, lambda: x * w),
        "product": _issue(clock, lambda: F.linear(x, w)),
        "module": _issue(clock, lambda: linear(x)),
        "backward_operator": _backward(clock, w),
        "optimizer": _optimizer(clock),
    }
    if clock.ranks > 1:
        found["collective"] = _collective(clock, x.clone())
    return {name: clock.agreed(seconds) for name, seconds in found.items()}


def _issue(clock: Clock, call: Callable[[], object]) -> float:
    def many() -> float:
        start = time.perf_counter()
        for _ in range(tuning.ISSUED):
            call()
        return (time.perf_counter() - start) / tuning.ISSUED

    return _median(clock, many)


def _backward(clock: Clock, w: Tensor) -> float:
    def chain() -> float:
        y = w
        for _ in range(tuning.ISSUED):
            y = y * w
        total = y.sum()
        clock.finish()
        start = time.perf_counter()
        torch.autograd.grad(total, w)
        # Each node multiplies twice and adds its part to the gradient of w.
        return (time.perf_counter() - start) / tuning.ISSUED

    return _median(clock, chain)


def _optimizer(clock: Clock) -> float:
    parameters = [torch.nn.Parameter(torch.ones(4, device=clock.kind)) for _ in range(tuning.ISSUED)]
    for parameter in parameters:
        parameter.grad = torch.ones_like(parameter)
    adam = torch.optim.AdamW(parameters, lr=1e-3)

    def step() -> float:
        start = time.perf_counter()
        adam.step()
        return (time.perf_counter() - start) / tuning.ISSUED

    return _median(clock, step)


def _collective(clock: Clock, x: Tensor) -> float:
    def many() -> float:
        start = time.perf_counter()
        works = [dist.all_reduce(x, async_op=True) for _ in range(tuning.ISSUED)]
        seconds = (time.perf_counter() - start) / tuning.ISSUED
        for work in works:
            if work is not None:
                work.wait()
        return seconds

    return _median(clock, many)


def _median(clock: Clock, timed: Callable[[], float]) -> float:
    values = []
    for _ in range(1 + tuning.REPEATS):
        clock.meet()
        values.append(timed())
    return statistics.median(values[1:])
