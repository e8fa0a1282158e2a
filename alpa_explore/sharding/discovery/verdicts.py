"""Which candidates are splits: their pieces give the whole, alone and two at a time."""

from __future__ import annotations

import itertools
import string
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace

import torch

from alpa_explore.sharding.discovery.question import Placements, Question, RefusalError
from alpa_explore.sharding.discovery.shapes import Candidate, ShapeRun
from alpa_explore.sharding.discovery.trials import Trial, make_trials
from alpa_explore.sharding.spec import PARTIAL, REPLICATE
from alpa_explore.sharding.strategy import Split


@torch.no_grad()
def proven_splits(
    question: Question, candidates: Sequence[Candidate], report: Callable[[int], None]
) -> tuple[Split, ...] | str:
    """The splits that hold, or the reason why none can be judged.

    `report(number)` is called before each candidate. For the child process alone: a forked process has lost torch's
    threads, and would wait for them for ever.
    """
    torch.set_num_threads(1)
    try:
        trials = make_trials(question)
    except RefusalError as refusal:
        return str(refusal)
    shapes = ShapeRun(question)
    kept: list[Split] = []
    for number, candidate in enumerate(candidates):
        report(number)
        if candidate.spare and any(not s.divides for s in kept):
            continue  # a sum through all inputs passes: sums through one of them would only double the choices
        split = _proven(candidate, trials, question)
        if split is not None and _fits(split, kept, shapes, trials):
            kept.append(replace(split, factor=_unused(split.factor, {s.factor for s in kept})))
    return tuple(kept)


def _proven(candidate: Candidate, trials: Sequence[Trial], question: Question) -> Split | None:
    """The split of a candidate, if values bear it out."""
    inputs = candidate.inputs
    if PARTIAL in inputs:
        outputs: Placements = (PARTIAL,) * len(question.outputs)
        holds = all(trial.holds([(inputs, outputs, n)]) for trial in trials for n in (2, 3))
        return Split("sum", 1, inputs, outputs, divides=False) if holds else None
    choices = [
        [d] if d >= 0 else [REPLICATE, *([PARTIAL] if t.dtype != "bool" else [])]
        for t, d in zip(question.outputs, candidate.dims, strict=True)
    ]
    for outputs in itertools.product(*choices):
        if all(p == REPLICATE for p in outputs):
            continue
        verdicts = [[trial.holds([(inputs, outputs, n)]) for n in trial.counts_for(inputs)] for trial in trials]
        known = [[v for v in row if v is not None] for row in verdicts]
        if any(known) and all(all(row) for row in known):
            return Split(_factor(inputs, outputs), candidate.size, inputs, outputs)
    return None


def _factor(inputs: Placements, outputs: Placements) -> str:
    """'dim1' for a cut of the output's dim 1, 'over1' for a sum over dim 1 of an input."""
    place = next((p for p in outputs if p >= 0), None)
    return f"dim{place}" if place is not None else f"over{next(p for p in inputs if p >= 0)}"


def _unused(name: str, used: Collection[str]) -> str:
    """`name`, or with a letter behind it: a strategy tells the loops of an operator apart by their names."""
    return next(n for n in (name, *(name + letter for letter in string.ascii_lowercase)) if n not in used)


def _fits(split: Split, kept: Sequence[Split], shapes: ShapeRun, trials: Sequence[Trial]) -> bool:
    """True when `split` holds together with each of the earlier ones, on two mesh axes."""
    for other in kept:
        tensors = zip((*split.inputs, *split.outputs), (*other.inputs, *other.outputs), strict=True)
        if any(a == b and a >= 0 for a, b in tensors):
            if split.outputs == other.outputs:
                return False  # another way to divide the same loop
            continue  # two factors never share a dim of one tensor (strategy.enumerate_strategies)
        for pair in ((split, other), (other, split)):
            if shapes.outputs([(s.inputs, 2) for s in pair if s.divides and s.size % 2 == 0]) is None:
                return False
            for trial in trials:
                counts = [next(iter(trial.counts_for(s.inputs)), 0) for s in pair]
                cuts = [(s.inputs, s.outputs, n) for s, n in zip(pair, counts, strict=True)]
                if all(counts) and trial.holds(cuts) is False:
                    return False
    return True
