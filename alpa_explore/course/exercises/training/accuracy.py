"""Exercises of lesson 13: how good are these numbers?"""

from __future__ import annotations

from math import isclose
from random import Random
from typing import NamedTuple

from alpa_explore import units
from alpa_explore.accuracy.choices import Choice as MeasuredChoice
from alpa_explore.accuracy.choices import choices
from alpa_explore.accuracy.measured_run import MeasuredRun
from alpa_explore.accuracy.record import stored_record
from alpa_explore.course.definition import Exercise
from alpa_explore.course.kinds import Choice, Number


class Errors(NamedTuple):
    """(predicted, measured) seconds of some runs that somebody measured."""

    runs: tuple[tuple[float, float], ...]
    source: str

    @property
    def each(self) -> list[float]:
        """predicted / measured − 1."""
        return [predicted / measured - 1 for predicted, measured in self.runs]

    @property
    def mean_error(self) -> float:
        """Mean of the absolute errors."""
        return sum(map(abs, self.each)) / len(self.runs)

    @property
    def seconds(self) -> float:
        """Mean of the absolute differences in seconds."""
        return sum(abs(predicted - measured) for predicted, measured in self.runs) / len(self.runs)

    @property
    def bias(self) -> float:
        """Mean of the errors."""
        return sum(self.each) / len(self.runs)


class Layouts(NamedTuple):
    """Seconds of layouts of one model on the same GPUs: (predicted, measured) of each."""

    names: tuple[str, ...]
    seconds: tuple[tuple[float, float], ...]
    model: str

    @property
    def regret(self) -> float:
        """How much longer the predicted best takes than the best."""
        picked = min(self.seconds, key=lambda pair: pair[0])
        return picked[1] / min(measured for _, measured in self.seconds) - 1


def _usable(run: MeasuredRun) -> bool:
    return run.seconds_error is not None and bool(run.predicted_seconds and run.measured_seconds)


def _errors(random: Random) -> Errors:
    """Some runs of one source, with errors of both signs."""
    record = stored_record()
    while True:
        source = random.choice(record.sources)
        runs = [run for run in record.of(source.name) if _usable(run)]
        if len(runs) < 8:
            continue
        pairs = tuple(
            (round(run.predicted_seconds or 0.0, 3), round(run.measured_seconds or 0.0, 3))
            for run in random.sample(runs, 4)
        )
        errors = Errors(pairs, source.label)
        if min(errors.each) < -0.005 and max(errors.each) > 0.005 and errors.mean_error > 1.2 * abs(errors.bias):
            return errors


def _groups() -> list[MeasuredChoice]:
    """Groups of layouts that ran once each, of the same batch."""
    return [
        choice
        for choice in choices(stored_record().runs)
        if len(choice.runs) == choice.layouts >= 4
        and len({run.global_batch for run in choice.runs}) == 1
        and len({run.layout for run in choice.runs}) == len(choice.runs)
    ]


def _layouts(random: Random) -> Layouts:
    """Four layouts of a group."""
    group = random.choice(_groups())
    runs = random.sample(group.runs, 4)
    seconds = tuple((round(r.predicted_seconds or 0.0, 3), round(r.measured_seconds or 0.0, 3)) for r in runs)
    model = f"{group.best.model} on {group.best.gpus} {group.best.device}"
    return Layouts(tuple(run.layout for run in runs), seconds, model)


def _lines(rows: tuple[tuple[float, float], ...], names: tuple[str, ...] = ()) -> str:
    labels = names or tuple(f"run {place}" for place in range(1, len(rows) + 1))
    return "\n".join(
        f"- {label}: predicted {predicted:g} s, measured {measured:g} s"
        for label, (predicted, measured) in zip(labels, rows, strict=True)
    )


class Fit(NamedTuple):
    """The mean error of fitted runs, and the halves in the order of the options."""

    error: float
    offered: tuple[str, ...]


_FITTED = ("the fitted runs", "the runs that were held out", "all runs together")

EXERCISES = (
    Exercise(
        id="13.1",
        draw=_errors,
        kind=lambda _: Number(unit="share"),
        truth=lambda e: e.mean_error,
        values={
            "runs": lambda n, _: _lines(n.runs),
            "errors": lambda n, _: ", ".join(f"{100 * error:+.1f} %" for error in n.each),
            "bias": lambda n, _: 100 * n.bias,
        },
        wrong=lambda e, truth: (abs(e.bias), e.seconds if not isclose(e.seconds, truth, rel_tol=0.05) else None),
        holds=lambda e: e.mean_error > abs(e.bias),
    ),
    Exercise(
        id="13.2",
        draw=_layouts,
        kind=lambda _: Number(unit="share", tolerance=0.03),
        truth=lambda n: n.regret,
        values={
            "layouts": lambda n, _: _lines(n.seconds, n.names),
            "picked": lambda n, _: n.names[min(range(4), key=lambda i: n.seconds[i][0])],
            "took": lambda n, _: min(n.seconds)[1],
            "fastest": lambda n, _: min((m for _, m in n.seconds)),
            "regret": lambda _, truth: (
                "0 %: the order at the top is right, whatever the errors of the times are."
                if truth == 0
                else f"{units.percent(truth)}."
            ),
        },
        wrong=lambda n, truth: (
            max(m for _, m in n.seconds) / min(m for _, m in n.seconds) - 1
            if max(m for _, m in n.seconds) / min(m for _, m in n.seconds) - 1 > truth + 0.05
            else None,
            None if max(m for _, m in n.seconds) / min(m for _, m in n.seconds) - 1 > truth + 0.05 else truth + 1,
        ),
        holds=lambda n: len({m for _, m in n.seconds}) > 1,
    ),
    Exercise(
        id="13.3",
        draw=lambda random: Fit(random.choice((0.02, 0.03, 0.04, 0.05)), tuple(random.sample(_FITTED, len(_FITTED)))),
        kind=lambda f: Choice(options=f.offered),
        truth=lambda _: _FITTED[1],
        values={
            "double": lambda n, _: 2 * n.error,
            "more": lambda n, _: 1.5 * n.error,
            "fitted": lambda *_: _FITTED[1],
        },
        wrong=lambda *_: (_FITTED[0], _FITTED[2]),
        holds=lambda _: (
            any(run.held_out for run in stored_record().runs) and any(not run.held_out for run in stored_record().runs)
        ),
    ),
)
"""In the order of their ids."""
