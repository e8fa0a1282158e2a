"""Predict, then reveal: a guess of a layout, its price with the error band, its rank, and a measured run beside it.

A guess gives some degrees; what it leaves open (the microbatch, ZeRO, recomputation) is what is fastest with them. The
league has the guesses of all students whose progress is in the same folder, and the best uniform layout.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from alpa_explore import units
from alpa_explore.accuracy.error_band import NOT_MEASURED
from alpa_explore.arguments import checked
from alpa_explore.baselines.layout import Axis
from alpa_explore.cluster import Cluster
from alpa_explore.course import students
from alpa_explore.course.cards import Card
from alpa_explore.course.examples import planned
from alpa_explore.errors import AlpaExploreError
from alpa_explore.uniform_layouts.beside_plan import plan_beside
from alpa_explore.uniform_layouts.layouts import layouts
from alpa_explore.uniform_layouts.measured import MeasuredLayout, measured_beside
from alpa_explore.uniform_layouts.ranking import Layouts, PricedLayout, memory_words

_DEGREES: tuple[Axis, ...] = ("tensor", "pipeline", "data", "context", "expert")
_ARGUMENTS: Mapping[Axis, str] = {
    "tensor": "tp",
    "pipeline": "pp",
    "data": "dp",
    "context": "cp",
    "expert": "ep",
    "zero_stage": "zero",
}
"""Axis of a layout -> its name among the arguments of `guess`, where that is another."""
_NEAR_BEST = 0.05
"""A guess this much slower than the best layout, or less, is a good one."""
_MEASURED = 3
"""Measured runs that are shown at most."""


@checked("model", "cluster")
def guess(
    model: str,
    cluster: str,
    *,
    tp: int = 1,
    pp: int = 1,
    dp: int | None = None,
    cp: int = 1,
    ep: int = 1,
    microbatch: int | None = None,
    zero: int | None = None,
    recompute: str | None = None,
    global_batch: int | None = None,
    sequence: int | None = None,
    precision: str | None = None,
    planner: bool = False,
) -> Card:
    """Guess the best layout of a model on a cluster: `guess("llama-3-8b", "1x8:h100", tp=2, pp=1, dp=4)`.

    The answer is the predicted time with its error band, the rank among all uniform layouts, the best of them, and
    measured runs of the same kind where there are some. `dp` is by default what the other degrees leave.
    `planner` also makes the planner's plan, which takes some time.
    """
    try:
        asked = priced_layouts(model, cluster, global_batch, sequence, precision)
    except AlpaExploreError as error:
        return Card("hint", f"{error.what}: {error.found}", error.remedy)
    devices = asked.cluster.devices
    degrees = {"tp": tp, "pp": pp, "cp": cp, "ep": ep} | ({} if dp is None else {"dp": dp})
    if wrong := [
        name for name, value in degrees.items() if isinstance(value, bool) or not isinstance(value, int) or value < 1
    ]:
        return Card("hint", f"{wrong[0]} = {degrees[wrong[0]]!r}", "Degrees are whole numbers from 1 on.")
    if dp is None:
        dp = devices // (tp * pp * cp)
    if tp * pp * dp * cp != devices:
        product = f"{tp} · {pp} · {dp} · {cp} = {tp * pp * dp * cp}"
        return Card(
            "hint",
            f"tp · pp · dp · cp = {product}, but {asked.cluster} has {devices} devices",
            "Every device has a place: choose degrees whose product is the number of devices.",
        )
    wanted: dict[Axis, Any] = dict(zip(_DEGREES, (tp, pp, dp, cp, ep), strict=True))
    optional: dict[Axis, Any] = {"microbatch": microbatch, "zero_stage": zero, "recompute": recompute}
    wanted |= {axis: value for axis, value in optional.items() if value is not None}
    found = asked.where(wanted)
    if not found:
        return Card("hint", "There is no such layout", _nearest(asked, wanted))
    own = {"sequence": sequence, "precision": precision}
    return _reveal(asked, found[0], planner=own if planner else None)


@checked("model")
def league(model: str | None = None) -> Card:
    """The guesses so far, the best first: those of every student whose progress is in the same folder."""
    records = [
        {**record, "student": student.name}
        for student in students.everyone()
        for record in student.guesses
        if model is None or record.get("model") == model
    ]
    problems: dict[str, dict[tuple[str, str], dict[str, Any]]] = {}
    for record in records:
        of_problem = problems.setdefault(str(record["problem"]), {})
        of_problem.setdefault((record["student"], record["layout"]), record)
    if not problems:
        return Card("plain", "The league is empty", "A `guess(…)` that fits in memory is its first row.")
    parts = []
    for problem, of_problem in sorted(problems.items()):
        ordered = sorted(of_problem.values(), key=lambda record: record["seconds"])
        best = ordered[0]
        parts.append(f"**{problem}**")
        parts.append(
            "\n".join(
                [f"- {units.seconds(best['best_seconds'])}: the best uniform layout"]
                + [
                    f"- {units.seconds(record['seconds'])} "
                    f"(+{units.percent(max(0, record['seconds'] / record['best_seconds'] - 1))}): "
                    f"{record['student']}, {record['layout']}"
                    for record in ordered
                ]
            )
        )
    return Card("plain", "The league of guesses", "\n\n".join(parts))


@lru_cache(maxsize=16)
def priced_layouts(
    model: str, cluster: str, global_batch: int | None, sequence: int | None, precision: str | None
) -> Layouts:
    """All layouts of a problem, priced once per process."""
    parsed = Cluster.parse(cluster)
    return layouts(model, parsed, global_batch=global_batch, sequence=sequence, precision=precision)


def _reveal(asked: Layouts, priced: PricedLayout, *, planner: Mapping[str, Any] | None) -> Card:
    problem = f"{asked.model} on {asked.cluster}, {asked.global_batch} samples of {asked.sequence:,} tokens"
    best, room = asked.best, memory_words(priced, asked.cluster)
    if not priced.fits:
        instead = f" The best that fits is {best.words}: {units.seconds(best.seconds)}." if best else ""
        return Card("wrong", f"{priced.words}: does not fit", f"It needs {room}: {priced.reason}.{instead}")
    assert best is not None, "a layout that fits is not better than the best"
    band = asked.band(priced, "seconds")
    regret = priced.seconds / best.seconds - 1
    if priced.tight:
        room += " (tight: with the error of the prediction it may need more than there is)"
    lines = [
        f"Predicted: {units.seconds(priced.seconds)} an iteration, "
        + (f"± ?, {NOT_MEASURED}" if band is None else band.words),
        f"Rank: {asked.rank(priced)} of {len(asked.fitting):,} layouts that fit ({len(asked.ranked):,} in all); memory "
        f"{room}; MFU {units.percent(priced.mfu)}",
    ]
    if regret > 0:
        lines.append(
            f"The best: {best.words}, {units.seconds(best.seconds)}; your guess is {units.percent(regret)} slower"
        )
        if band is not None and regret < band.fraction:
            lines.append(
                "The difference is smaller than the error band: a measurement may well rank them the other way"
            )
    lines += [_planner_line(asked, planner)] if planner is not None else []
    lines += [_measured_line(asked, one, priced) for one in measured_beside(asked)[:_MEASURED]]
    _remember(asked, problem, priced, best)
    verdict = "the best" if regret <= 0 else "a good guess" if regret <= _NEAR_BEST else "not the best"
    text = f"{problem}.\n\n" + "\n".join(f"- {line}." for line in lines)
    return Card("right" if regret <= _NEAR_BEST else "wrong", f"{priced.words}: {verdict}", text)


def _measured_line(asked: Layouts, one: MeasuredLayout, priced: PricedLayout) -> str:
    """A measured run beside the prediction that the record has of it, for the batch of the question."""
    run = one.run
    same = one.priced is not None and all(
        getattr(one.priced.layout, axis) == getattr(priced.layout, axis) for axis in (*_DEGREES, "microbatch")
    )
    predicted = ""
    if run.predicted_seconds is not None and run.global_batch:
        predicted = f" (predicted {units.seconds(run.predicted_seconds * asked.global_batch / run.global_batch)})"
    mine = "Measured, your degrees" if same else "Measured"
    return f"{mine}: {run.layout} on {run.software}, {units.seconds(one.seconds)}{predicted}"


def _planner_line(asked: Layouts, own: Mapping[str, Any]) -> str:
    """What the planner does in place of one layout for all stages, with as many microbatches as the best layout has;
    `own` are the options that the user gave."""
    assert asked.best is not None, "called where a layout fits"
    try:
        plan = planned(
            asked.model,
            str(asked.cluster),
            num_microbatches=asked.best.layout.microbatches,
            global_batch=asked.global_batch,
            **{name: value for name, value in own.items() if value is not None},
        )
    except AlpaExploreError as error:
        return f"The planner has no plan: {error.what}, {error.found}"
    beside = plan_beside(asked, plan)
    doubt = f"; its time says nothing beside these: {beside.incomparable}" if beside.incomparable else ""
    return f"The planner: {beside.words}, {units.seconds(beside.seconds)}{doubt}"


def _remember(asked: Layouts, problem: str, priced: PricedLayout, best: PricedLayout) -> None:
    who = students.current()
    record = {
        "problem": problem,
        "model": asked.model,
        "layout": priced.words,
        "seconds": priced.seconds,
        "best_seconds": best.seconds,
    }
    if record not in who.guesses:
        who.guesses.append(record)
    who.save()


def _nearest(asked: Layouts, wanted: Mapping[Axis, Any]) -> str:
    """What to change: the values that the first degree may have which no layout with those before it has."""
    kept: dict[Axis, Any] = {}
    for axis, value in wanted.items():
        if not asked.where({**kept, axis: value}):
            values = sorted({getattr(priced.layout, axis) for priced in asked.where(kept)}, key=str)
            others = ", ".join(f"{_ARGUMENTS.get(name, name)} = {kept[name]}" for name in kept) or "this model"
            return f"With {others}, {_ARGUMENTS.get(axis, axis)} can be {', '.join(map(str, values))}."
        kept[axis] = value
    return "Leave some of the degrees out."
