"""The splits of an operator without a rule, established by running it.

A split is accepted when the unchanged operator, run on shards of its inputs, produces shards of its whole outputs:

1. *Shapes, at full size* (`shapes`). Every way of sharding dims of equal extent is run on meta tensors with the real
   arguments. The shape of each output shows whether it is then sharded along one dim or has its full size.
2. *Values, at small sizes* (`trials`). The sizes are reduced and the operator runs in float64 on random
   numbers (normal, positive, with repeated values, large), whole and in 2, 3 and 4 shards. The outputs of the shards,
   concatenated or added, must equal those of the whole, at two different reduced sizes and at full size where that is
   small.
3. *Pairs* (`validation`). Two splits on two mesh axes must hold together; otherwise the later one is dropped.

The operator must run unchanged on a shard, because `sharding.local` changes no argument of an operator that it does not
list. An operator that cannot be tested (random numbers, in-place writes, value-dependent shapes, no kernel) is
replicated, with the reason. Values are computed in a child process (`run_in_child`): given shards whose shapes do not
fit each other, some kernels write out of bounds. A fork and not a new interpreter: operators that a notebook or a
library registered exist in the child, and starting it takes milliseconds.
"""

import faulthandler
import itertools
import os
import signal
import string
import time
import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import Any, NoReturn

import torch

from alpa_explore.graph import Operator, Tensor
from alpa_explore.graph.counts import is_matrix_product
from alpa_explore.graph.operator import operator_signature
from alpa_explore.sharding.discovery import tuning
from alpa_explore.sharding.discovery.shapes import (
    Candidate,
    OperatorCall,
    Placements,
    ShapeRun,
    UnsupportedOperatorError,
    candidates,
    short,
)
from alpa_explore.sharding.discovery.trials import Trial, make_trials
from alpa_explore.sharding.local.steps import StepWriter
from alpa_explore.sharding.spec import PARTIAL, REPLICATE
from alpa_explore.sharding.strategy import Coverage, Split
from alpa_explore.tracing.symbols import overload


class CrashError(Exception):
    """The child died or ran out of time before it returned a result; `step` is the last step that it reported."""

    def __init__(self, step: int | None, *, late: bool) -> None:
        super().__init__("took too long" if late else "crashed")
        self.step, self.late = step, late


def run_in_child(function: Callable[[Callable[[int], None]], Any], *, limit_seconds: float) -> Any:
    """What `function(report)` returns (pickled on its way); it calls report(step) before each step.

    CrashError when the child dies or takes too long; RuntimeError with the text of what the function raised.
    """
    reading, writing = Pipe(duplex=False)
    with warnings.catch_warnings():
        # Python 3.12 warns about fork in a multi-threaded process. A lock that another thread holds at the fork would
        # block the child for ever; the time limit ends that.
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        reading.close()
        _answer(function, writing)
    writing.close()
    deadline, step = time.monotonic() + limit_seconds, None
    try:
        while reading.poll(max(deadline - time.monotonic(), 0.0)):
            message = reading.recv()
            if isinstance(message, int):
                step = message
                continue
            value, problem = message
            if problem is not None:
                raise RuntimeError(problem)
            return value
    except (EOFError, OSError) as error:  # it died, in the middle of a message maybe
        raise CrashError(step, late=False) from error
    finally:
        reading.close()
        os.kill(child, signal.SIGKILL)  # safe: the process id is not reused before waitpid
        os.waitpid(child, 0)
    raise CrashError(step, late=True)


def _answer(function: Callable[[Callable[[int], None]], Any], writing: "Connection[Any, Any]") -> NoReturn:
    """Everything that the child runs. Its stderr is discarded: glibc prints 'corrupted size …' when it aborts."""
    code = 1
    try:
        faulthandler.disable()
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        answer: tuple[Any, str | None]
        try:
            answer = (function(writing.send), None)
        except Exception as error:  # the parent raises it: an exception itself may not survive pickling
            answer = (None, f"{type(error).__name__}: {error}")
        writing.send(answer)
        code = 0
    finally:
        os._exit(code)  # skips the exit handlers inherited from the parent


@torch.no_grad()
def validated_splits(
    call: OperatorCall, candidates: Sequence[Candidate], report: Callable[[int], None]
) -> tuple[Split, ...] | str:
    """The candidates that hold, or the reason why none can be tested.

    `report(number)` is called before each candidate. Runs only in the child process: it limits torch to one thread,
    because a forked process has lost torch's worker threads and would wait for them for ever.
    """
    torch.set_num_threads(1)
    try:
        trials = make_trials(call)
    except UnsupportedOperatorError as unsupported:
        return str(unsupported)
    shapes = ShapeRun(call)
    kept: list[Split] = []
    for number, candidate in enumerate(candidates):
        report(number)
        if candidate.spare and any(not s.divides for s in kept):
            continue  # a pending sum of all inputs is valid; pending sums of one would only double the strategies
        split = _validated(candidate, trials, call)
        if split is not None and _is_compatible(split, kept, shapes, trials):
            kept.append(replace(split, factor=_unused(split.factor, {s.factor for s in kept})))
    return tuple(kept)


def _validated(candidate: Candidate, trials: Sequence[Trial], call: OperatorCall) -> Split | None:
    """The split of a candidate, if it reproduces the whole in every trial; else None."""
    inputs = candidate.inputs
    if PARTIAL in inputs:
        outputs: Placements = (PARTIAL,) * len(call.outputs)
        holds = all(trial.holds([(inputs, outputs, n)]) for trial in trials for n in (2, 3))
        return Split("sum", 1, inputs, outputs, divides=False) if holds else None
    choices = [
        [d] if d >= 0 else [REPLICATE, *([PARTIAL] if t.dtype != "bool" else [])]
        for t, d in zip(call.outputs, candidate.dims, strict=True)
    ]
    for outputs in itertools.product(*choices):
        if all(p == REPLICATE for p in outputs):
            continue
        verdicts = [[trial.holds([(inputs, outputs, n)]) for n in trial.counts_for(inputs)] for trial in trials]
        decided = [[v for v in row if v is not None] for row in verdicts]
        if any(decided) and all(all(row) for row in decided):
            return Split(_factor(inputs, outputs), candidate.size, inputs, outputs)
    return None


def _factor(inputs: Placements, outputs: Placements) -> str:
    """'dim1' when dim 1 of an output is sharded, 'over1' when dim 1 of an input is summed."""
    place = next((p for p in outputs if p >= 0), None)
    return f"dim{place}" if place is not None else f"over{next(p for p in inputs if p >= 0)}"


def _unused(name: str, used: Collection[str]) -> str:
    """`name`, with a letter appended if it is taken: the factors of an operator need distinct names."""
    return next(n for n in (name, *(name + letter for letter in string.ascii_lowercase)) if n not in used)


def _is_compatible(split: Split, kept: Sequence[Split], shapes: ShapeRun, trials: Sequence[Trial]) -> bool:
    """True when `split` is valid together with each split of `kept`, on two mesh axes."""
    for other in kept:
        tensors = zip((*split.inputs, *split.outputs), (*other.inputs, *other.outputs), strict=True)
        if any(a == b and a >= 0 for a, b in tensors):
            if split.outputs == other.outputs:
                return False  # the same factor, found again
            continue  # such a pair is never combined (strategy.enumerate_strategies)
        for pair in ((split, other), (other, split)):
            if shapes.outputs([(s.inputs, 2) for s in pair if s.divides and s.size % 2 == 0]) is None:
                return False
            for trial in trials:
                counts = [next(iter(trial.counts_for(s.inputs)), 0) for s in pair]
                cuts = [(s.inputs, s.outputs, n) for s, n in zip(pair, counts, strict=True)]
                if all(counts) and trial.holds(cuts) is False:
                    return False
    return True


def discover(operator: Operator, tensors: Sequence[Tensor] | Mapping[int, Tensor]) -> Coverage:
    """The splits of `operator` on tensors of these shapes and dtypes, by their numbers. Never raises; operators of
    equal signature are run once in a process."""
    inputs, outputs = (tuple(tensors[t] for t in side) for side in (operator.inputs, operator.outputs))
    call = OperatorCall(_numbered(operator), inputs, outputs)
    return _discovered(_Known(operator_signature(operator, tensors), call))


@dataclass(frozen=True, slots=True)
class _Known:
    """An operator, known by its signature."""

    signature: tuple[object, ...]
    call: OperatorCall = field(compare=False)


# Memo of a pure function.
@lru_cache(maxsize=1024)
def _discovered(known: _Known) -> Coverage:
    call = known.call
    try:
        _check_kind(call.operator.kind)
        if not call.inputs:
            raise UnsupportedOperatorError("it reads no tensors that could be sharded")
        if splits := _tested(call, candidates(call)):
            return Coverage(splits, is_matrix_product(call.operator.kind), "discovered")
        reason = "no sharding of its inputs gives shards of its outputs"
    except UnsupportedOperatorError as unsupported:
        reason = str(unsupported)
    except CrashError as crash:
        reason = f"running it on small inputs {crash}"
    except Exception as error:  # an unknown operator may raise anything; it is then replicated and the plan goes on
        reason = f"it could not be run: {short(error)}"
    return Coverage((), False, "replicated", reason)


def _tested(call: OperatorCall, proposed: Sequence[Candidate]) -> tuple[Split, ...]:
    """The candidates that hold on values, which a child process tests.

    If the child crashes, each candidate is tested in a child of its own and those that crash are dropped.
    """
    if not proposed:
        raise UnsupportedOperatorError("no sharding of its inputs gives outputs of matching shapes")
    try:
        return _run(call, proposed)
    except CrashError as crash:
        if crash.late or crash.step is None:
            raise
    return _run(call, [c for c in proposed if _survives(call, c)])


def _run(call: OperatorCall, proposed: Sequence[Candidate]) -> tuple[Split, ...]:
    answer: tuple[Split, ...] | str = run_in_child(
        lambda report: validated_splits(call, proposed, report), limit_seconds=tuning.LIMIT_SECONDS
    )
    if isinstance(answer, str):
        raise UnsupportedOperatorError(answer)
    return answer


def _survives(call: OperatorCall, candidate: Candidate) -> bool:
    """True when the candidate is a valid split and running it does not crash."""
    try:
        return bool(_run(call, [candidate]))
    except (CrashError, UnsupportedOperatorError):
        return False


def _check_kind(kind: str) -> None:
    """UnsupportedOperatorError for an operator that torch does not know or that writes into its inputs."""
    if kind.count(".") != 2:
        raise UnsupportedOperatorError("torch has no operator of this name")
    try:
        operator = overload(kind)
    except AttributeError as error:
        unknown = "torch has no operator of this name (is the library that defines it imported?)"
        raise UnsupportedOperatorError(unknown) from error
    if operator._schema.is_mutable:
        raise UnsupportedOperatorError("it writes into its inputs")


def _numbered(operator: Operator) -> Operator:
    """`operator` with its inputs renumbered 0, 1, …, one number for each position (repeats get their own)."""
    writer = StepWriter(operator)
    writer.call_all(operator.kind, writer.arguments, writer.keywords, len(operator.outputs))
    (step,) = writer.finish([]).steps
    assert isinstance(step, Operator)
    return step
