"""Which candidates are splits: their shards reproduce the whole outputs, alone and two at a time."""

from __future__ import annotations

import itertools
import string
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace

import torch

from alpa_explore.sharding.discovery.operator_call import OperatorCall, Placements, UnsupportedOperatorError
from alpa_explore.sharding.discovery.shapes import Candidate, ShapeRun
from alpa_explore.sharding.discovery.trials import Trial, make_trials
from alpa_explore.sharding.spec import PARTIAL, REPLICATE
from alpa_explore.sharding.strategy import Split


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
