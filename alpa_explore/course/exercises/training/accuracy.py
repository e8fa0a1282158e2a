"""Exercises of lesson 13: how good are these numbers?"""

from __future__ import annotations

from math import isclose
from random import Random
from textwrap import dedent
from typing import NamedTuple

from alpa_explore import units
from alpa_explore.accuracy.choices import Choice as MeasuredChoice
from alpa_explore.accuracy.choices import choices
from alpa_explore.accuracy.measured_run import MeasuredRun
from alpa_explore.accuracy.record import stored_record
from alpa_explore.course.definition import Exercise, Mistake
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
        title="Mean error",
        draw=_errors,
        question=lambda e: (
            f"Four runs of {e.source}:\n\n{_lines(e.runs)}\n\nWhat is the mean absolute error of the predictions, as a "
            "share of the measured time?"
        ),
        kind=lambda _: Number(unit="share"),
        truth=lambda e: e.mean_error,
        why=lambda e, truth: (
            f"The errors are {', '.join(f'{100 * error:+.1f} %' for error in e.each)}. The mean of their sizes is "
            f"{units.percent(truth)}; with their signs it is {100 * e.bias:+.1f} %, the *bias*. A bias can be "
            "corrected by one factor, the rest cannot."
        ),
        mistakes=lambda e, truth: [
            Mistake(
                answer=abs(e.bias), reason="That is the bias: errors of both signs cancel in it. Take sizes first."
            ),
            *(
                [Mistake(answer=e.seconds, reason="Those are seconds. Divide each difference by its measured time.")]
                if not isclose(e.seconds, truth, rel_tol=0.05)
                else []
            ),
        ],
        hints=lambda _: ("The error of a run is predicted / measured − 1.", "Take the mean of the absolute values."),
        code=lambda e: dedent(f"""\
            runs = {e.runs}
            answer = sum(abs(predicted / measured - 1) for predicted, measured in runs) / len(runs)
            """),
        premise="errors of both signs cancel in the bias",
        holds=lambda e: e.mean_error > abs(e.bias),
    ),
    Exercise(
        id="13.2",
        title="Is the choice good?",
        draw=_layouts,
        question=lambda n: (
            f"Four layouts of {n.model}, as people measured them:\n\n{_lines(n.seconds, n.names)}\n\nA planner takes "
            "the layout that is predicted to be fastest. By which share is its measured time longer than the least "
            "measured time?"
        ),
        kind=lambda _: Number(unit="share", tolerance=0.03),
        truth=lambda n: n.regret,
        why=lambda n, truth: (
            f"It takes {n.names[min(range(4), key=lambda i: n.seconds[i][0])]}, which was measured at "
            f"{min(n.seconds)[1]:g} s; the fastest took {min(m for _, m in n.seconds):g} s. The *regret* is "
            + (
                "0 %: the order at the top is right, whatever the errors of the times are."
                if truth == 0
                else f"{units.percent(truth)}."
            )
        ),
        mistakes=lambda n, truth: [
            Mistake(
                answer=max(m for _, m in n.seconds) / min(m for _, m in n.seconds) - 1,
                reason="That is the slowest over the fastest: the worst choice that there is.",
            )
            if max(m for _, m in n.seconds) / min(m for _, m in n.seconds) - 1 > truth + 0.05
            else Mistake(answer=truth + 1, reason="That is the ratio; subtract 1.")
        ],
        hints=lambda _: (
            "Which layout has the least predicted time? Now look at its measured time.",
            "Measured time of the predicted best / least measured time − 1.",
        ),
        code=lambda n: dedent(f"""\
            seconds = {n.seconds}
            predicted, measured = min(seconds)
            answer = measured / min(m for _, m in seconds) - 1
            """),
        premise="the layouts differ in measured time",
        holds=lambda n: len({m for _, m in n.seconds}) > 1,
    ),
    Exercise(
        id="13.3",
        title="Which error to believe",
        draw=lambda random: Fit(random.choice((0.02, 0.03, 0.04, 0.05)), tuple(random.sample(_FITTED, len(_FITTED)))),
        question=lambda f: (
            "Figures of a cost model were fitted to half of 1,000 runs. On these its mean error is "
            f"{units.percent(f.error)}; on the other half it is {units.percent(2 * f.error)}, on all together "
            f"{units.percent(1.5 * f.error)}.\n\nWhich one says how wrong the prediction of a new run of this kind "
            "will be?"
        ),
        kind=lambda f: Choice(options=f.offered),
        truth=lambda _: _FITTED[1],
        why=lambda _, truth: (
            f"It is the error of {truth}: a fit bends its figures towards the runs that it sees, their noise "
            "included. Only runs that it did not "
            "see are like a new one. The error bands of this planner are those of held-out runs."
        ),
        mistakes=lambda *_: [
            Mistake(answer=_FITTED[0], reason="The fit has seen these runs; a new one it has not."),
            Mistake(answer=_FITTED[2], reason="Half of them were fitted: the mean is too good."),
        ],
        hints=lambda _: (
            "What does a new run have in common with one half, and not with the other?",
            "It was not seen.",
        ),
        code=lambda _: f"answer = {_FITTED[1]!r}",
        premise="the record tells fitted runs from held-out ones",
        holds=lambda _: (
            any(run.held_out for run in stored_record().runs) and any(not run.held_out for run in stored_record().runs)
        ),
    ),
)
"""In the order of their ids."""
