"""One kernel on the device: its seconds, their spread, and the seconds of the host to issue it.

Inputs are random. Several sets of them take turns, and what was made stays for some calls, so that a kernel finds
neither its inputs nor the memory that it writes to in the caches, as in a run, where other kernels ran since. Integers
may be indices: they are below the largest extent for which the operator runs, which is tried on the CPU, since a GPU
does not go on after an index out of range.
"""

from __future__ import annotations

import itertools
import math
import statistics
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx

from alpa_explore.calibration import tuning
from alpa_explore.calibration.measuring.clock import Clock
from alpa_explore.calibration.profiling.wanted import WantedKernel
from alpa_explore.graph import Operator
from alpa_explore.numerics.memory import freed_memory_kept
from alpa_explore.programs.execution.execute import Memory
from alpa_explore.programs.execution.optimizer_step import OPTIMIZERS, PieceOptimizer
from alpa_explore.tracing.aten import operator_call
from alpa_explore.tracing.experts.whole import experts_in_all
from alpa_explore.tracing.fused.rms_norm import rms_norm, rms_norm_backward

_RATE = 1e-3


class Timed(NamedTuple):
    """What was measured of one kernel."""

    seconds: float
    host_seconds: float
    spread: float
    """(third quartile − first quartile) / median of the runs."""


class NotTimed(NamedTuple):
    """Why a kernel was not timed."""

    why: str
    runs: bool
    """False where the device cannot run it; else it is random inputs that it cannot have."""


@torch.no_grad()
def timed(wanted: WantedKernel, kind: str) -> Timed:
    """Time a kernel on a device of `kind`; where that has no memory for several sets of inputs, with one.
    RuntimeError, or what else torch raises, where it does not run there.

    A device that is a CPU is one core, as each rank of a run has: its time is that of the thread, without what other
    programs take meanwhile.
    """
    threads = torch.get_num_threads()
    if kind == "cpu":
        torch.set_num_threads(1)
    clock = Clock(kind, 1, tuning.PROFILE_RUN_SECONDS, time.thread_time)
    try:
        try:
            with freed_memory_kept():  # as a rank of a run has it
                return _timed(wanted, clock, tuning.MOST_COPIES_OF_INPUTS)
        except torch.OutOfMemoryError:
            pass  # and its frame, with the tensors in it
        torch.cuda.empty_cache()
        return _timed(wanted, clock, 1)
    finally:
        torch.set_num_threads(threads)


def _timed(wanted: WantedKernel, clock: Clock, most: int) -> Timed:
    high = 2 if wanted.update else _bound_of_indices(wanted)
    size = sum(math.prod(shape) * _dtype(dtype).itemsize for shape, dtype, _ in wanted.inputs)
    copies = min(max(2, math.ceil(tuning.CACHE_BYTES[clock.kind] / max(size, 1))), most)
    first = random_inputs(wanted, high, clock.kind)
    sets = [first, *([tensor.clone() for tensor in first] for _ in range(copies - 1))]
    step: Callable[[], object]
    if wanted.update:
        step, calls = update(wanted, sets), copies
    else:
        run = as_compiled(wanted, sets[0]) if wanted.is_compiled else as_in_a_run(wanted, clock.kind)
        step, calls = in_turn(sets, run, tuning.CACHE_BYTES[clock.kind]), 1
    host: list[float] = []

    def kernel() -> None:
        began = time.perf_counter()
        step()
        host.append((time.perf_counter() - began) / calls)

    with torch.enable_grad() if wanted.update else torch.no_grad():
        runs = [run / calls for run in clock.runs(kernel)]
    quartiles = statistics.quantiles(runs, n=4)
    median = statistics.median(runs)
    return Timed(
        seconds=median,
        host_seconds=statistics.median(host) if clock.kind == "cuda" else 0.0,
        spread=(quartiles[2] - quartiles[0]) / median,
    )


def in_turn(
    sets: Sequence[Sequence[Tensor]], kernel: Callable[..., Sequence[Tensor]], cache_bytes: int
) -> Callable[[], object]:
    """A step that calls the kernel with the next set. What was made is kept as far as the caches reach, no further: a
    kernel may make far more than it reads. All of that is made before the first step, whose results take the memory of
    earlier ones, as in a run."""
    turns = itertools.cycle(sets)
    size = sum(tensor.nbytes for tensor in kernel(*next(turns)))
    kept = min(cache_bytes // max(size, 1), 2 * len(sets))
    made = deque[object]((kernel(*next(turns)) for _ in range(kept)), maxlen=kept)
    return lambda: made.append(kernel(*next(turns)))


def as_compiled(wanted: WantedKernel, inputs: Sequence[Tensor]) -> Callable[..., Sequence[Tensor]]:
    """The operators of a kernel as torch.compile makes them, those of this library written out in torch's."""
    written_out = {kernel._opoverload: kernel._init_fn for kernel in (rms_norm, rms_norm_backward)}

    together = kernel_call(wanted, str(inputs[0].device))
    traced = make_fx(together, decomposition_table=written_out)(*inputs)
    # One process compiles: none is left behind.
    kernel: Callable[..., Sequence[Tensor]] = torch.compile(traced, dynamic=False, options={"compile_threads": 1})
    return kernel


def update(wanted: WantedKernel, sets: Sequence[Sequence[Tensor]]) -> Callable[[], Sequence[Tensor]]:
    """A step of the optimizer on all (weight, gradient) of `sets`, as `wanted.update` says; it returns the weights."""
    kind, (weights, gradients) = str(wanted.call.steps[0].kind), zip(*sets, strict=True)
    how, _, states = wanted.update.partition(" ")
    if how == "plain" and not states:  # as this library's runtime has it
        pieces = [PieceOptimizer(kind, weight, _RATE) for weight in weights]
        # A gradient is a sum over microbatches, of which the step takes the mean.
        return lambda: [piece.step(gradient / 2) for piece, gradient in zip(pieces, gradients, strict=True)]
    masters = [torch.nn.Parameter(w.clone() if states or w.dtype.itemsize >= 4 else w.float()) for w in weights]
    optimizer = OPTIMIZERS[kind](masters, _RATE)
    optimizer.param_groups[0].update(foreach=how == "foreach", fused=how == "fused")

    def step() -> Sequence[Tensor]:
        for master, gradient in zip(masters, gradients, strict=True):
            master.grad = gradient.to(master.dtype)
        optimizer.step()
        updated = [master.detach() for master in masters]
        if weights[0].dtype == masters[0].dtype:
            return updated
        torch._foreach_copy_(list(weights), updated)
        return weights

    return step


def kernel_call(wanted: WantedKernel, device: str) -> Callable[..., tuple[Tensor, ...]]:
    """What the operators of a kernel make of its inputs, one after the other."""
    assert all(isinstance(step, Operator) for step in wanted.call.steps), "a kernel that is timed has no collectives"
    calls = [(step, operator_call(step, device)) for step in wanted.call.steps if isinstance(step, Operator)]

    def call(*inputs: Tensor) -> tuple[Tensor, ...]:
        values = dict(enumerate(inputs))
        for step, of_step in calls:
            values.update(zip(step.outputs, of_step({t: values[t] for t in step.inputs}), strict=True))
        return tuple(values[output] for output in wanted.call.outputs)

    return call


def as_in_a_run(wanted: WantedKernel, kind: str) -> Callable[..., tuple[Tensor, ...]]:
    """`kernel_call`; on a CPU with the bookkeeping of a rank for each value, which takes the same core's time."""
    call, memory = kernel_call(wanted, kind), Memory()
    if kind != "cpu":
        return call

    def counted(*inputs: Tensor) -> tuple[Tensor, ...]:
        made = call(*inputs)
        for tensor in made:
            memory.add(tensor)
        for tensor in made:
            memory.drop(tensor)
        return made

    return counted


def _bound_of_indices(wanted: WantedKernel) -> int:
    """One more than the largest index; 2 where nothing else runs. Tokens choose among all experts: an operator of
    routed experts runs with larger numbers, too, and leaves out their rows."""
    if not any(_is_integer(dtype) for _, dtype, _ in wanted.inputs):
        return 2
    if experts := max(experts_in_all(step) for step in wanted.call.steps if isinstance(step, Operator)):
        return experts
    extents = sorted({size for shape, *_ in wanted.inputs for size in shape if size > 1}, reverse=True)
    for high in extents:
        try:
            kernel_call(wanted, "cpu")(*random_inputs(wanted, high, "cpu"))
        except (IndexError, RuntimeError):
            continue
        return high
    return 2


def random_inputs(wanted: WantedKernel, high: int, device: str) -> list[Tensor]:
    """Random inputs of a kernel on a device, laid out as it reads them; integers are below `high`."""
    drawn = []
    for shape, name, order in wanted.inputs:
        laid_out = _input(tuple(shape[dim] for dim in order), _dtype(name), high, signed=wanted.kernel.matrix)
        drawn.append(laid_out.to(device).permute([order.index(dim) for dim in range(len(order))]))
    return drawn


def _input(shape: tuple[int, ...], dtype: torch.dtype, high: int, *, signed: bool) -> Tensor:
    if dtype is torch.bool:
        return torch.rand(shape) < 0.5
    if not (dtype.is_floating_point or dtype.is_complex):
        return torch.randint(0, high, shape).to(dtype)
    if signed:  # the time of attention depends on how far scores lie apart, the clock of a GPU on its numbers
        return torch.randn(shape).to(dtype)
    # Positive: they may be variances, or the results of a softmax.
    return torch.rand(shape).mul_(0.8).add_(0.1).to(dtype)


def _dtype(name: str) -> torch.dtype:
    found = getattr(torch, name)
    assert isinstance(found, torch.dtype), "a dtype of torch"
    return found


def _is_integer(name: str) -> bool:
    dtype = _dtype(name)
    return not (dtype.is_floating_point or dtype.is_complex or dtype is torch.bool)
