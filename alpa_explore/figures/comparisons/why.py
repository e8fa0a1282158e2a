"""Why a plan takes as long as it does: the parts of its time, what limits it, and what single changes would save."""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import wrap
from typing import NamedTuple

from alpa_explore import units
from alpa_explore.figures import tuning
from alpa_explore.figures.keys import key
from alpa_explore.figures.marks import Plots, bars_across, legend_below, sums, time_bars
from alpa_explore.figures.style import OKABE_ITO, Figure, faint, lines, safe
from alpa_explore.plans.plan import Plan
from alpa_explore.plans.report.tables import Row
from alpa_explore.questions.explain import (
    COLLECTIVES,
    COMPUTE,
    COMPUTING,
    UNKNOWN,
    Change,
    Limit,
    StageTime,
    changes,
    limits,
    mean_parts,
    time_parts,
)

__all__ = ["why_figure", "why_sentence", "why_table"]

_STAGE, _BAR, _GAP = 24, 32, 92
"""Pixels of a stage, of a limit or change, and between the panels."""
_NAME_CHARACTERS = (21, 16)
"""In a line of a name beside a bar, on the left and on the right, where less room is left by the bars before."""


def why_figure(plan: Plan, theme: str = "light", *, tried: Sequence[Plan] = ()) -> Figure:
    """Above, the parts of T for each stage, and the same without compute on a scale of their own; below, the cost of
    each limit, and what single changes save or cost.

    `tried` are other plans: those that differ from this one in a single setting count as changes too.
    """
    explanation = _explain(plan, tried)
    shown = [limit for limit in explanation.limits if limit.name not in (COMPUTING, UNKNOWN)][: tuning.WHY_BARS]
    above = _STAGE * len(explanation.times)
    below = _BAR * max(3, min(tuning.WHY_BARS, max(len(shown), len(explanation.changes))))
    height = above + below + _GAP
    titles = ("the whole iteration", "all but computing", "T would be shorter without", "less time a sample with")
    figure = Plots([above, below], [0.42, 0.58], spacing=(0.2, _GAP / height), titles=titles)
    _times(figure, plan, explanation.times)
    hover = [
        lines(f"<b>{safe(limit.name)}</b>", f"T without it {units.seconds(limit.iteration_seconds)}", limit.how)
        for limit in shown
    ]
    _bars(figure, 1, [(limit.name, limit.gain) for limit in shown], OKABE_ITO[1], hover, None)
    changed = explanation.changes[: tuning.WHY_BARS]
    number = {id(plan): place for place, plan in enumerate(tried)}
    keys = [key(plan=number[id(c.plan)]) if id(c.plan) in number else "" for c in changed]
    hover = [
        lines(
            f"<b>{safe(c.name)}</b>",
            f"T {units.seconds(c.plan.predicted.iteration_seconds)} for {c.plan.global_batch:,} samples",
            "needs other devices" if c.hardware else "",
            "click to show it" if own else "",
        )
        for c, own in zip(changed, keys, strict=True)
    ]
    _bars(figure, 2, [(safe(c.name), c.gain) for c in changed], OKABE_ITO[2], hover, keys)
    return figure.figure(
        _sentence(plan, explanation),
        theme=theme,
        height=height,
        above=14,
        around={"l": 160, "r": 16, "b": 112},
        barmode="stack",
        bargap=0.3,
        legend=legend_below(46, height),
        meta={"least_width": tuning.LABELLED_PIXELS},
    )


def why_sentence(plan: Plan, *, tried: Sequence[Plan] = ()) -> str:
    """What the figure shows for this plan."""
    return _sentence(plan, _explain(plan, tried))


def why_table(plan: Plan, *, tried: Sequence[Plan] = ()) -> list[Row]:
    """The same as rows: parts of the time by stage, then limits (T without them), then changes (their T)."""
    total, explanation = plan.predicted.iteration_seconds, _explain(plan, tried)
    of_stage, planned = "of T, on each device of the stage", "planned; share of the time of a sample that is saved"
    names = ("about", "what", "stage", "iteration_seconds", "share_fraction", "how")
    rows: list[tuple[object, ...]] = [
        ("time", name, time.stage, seconds, seconds / total, of_stage)
        for time in explanation.times
        for name, seconds in time.parts
    ]
    rows += [("limit", o.name, None, o.iteration_seconds, o.gain, o.how) for o in explanation.limits]
    rows += [("change", o.name, None, o.plan.predicted.iteration_seconds, o.gain, planned) for o in explanation.changes]
    return [dict(zip(names, row, strict=True)) for row in rows]


class _Explanation(NamedTuple):
    """What `questions.explain` computes for a plan; drawn, and summarised in the sentence."""

    times: tuple[StageTime, ...]
    limits: tuple[Limit, ...]
    changes: tuple[Change, ...]


def _sentence(plan: Plan, explanation: _Explanation) -> str:
    return " ".join((_where(plan, explanation), _limit(explanation), _advice(plan, explanation.changes)))


def _where(plan: Plan, explanation: _Explanation) -> str:
    """'Devices spend 87.1 % of T on compute, 5.62 % on waits (bubble) and 5.12 % on collectives inside a node.'"""
    shares = sorted(_shares(plan, explanation.times).items(), key=lambda part: -part[1])
    named = [
        f"{units.percent(share)}{' of T' if not place else ''} on {name}"
        for place, (name, share) in enumerate(shares[:3])
        if share >= tuning.NOTICEABLE_SHARE
    ]
    return f"Devices spend {', '.join(named[:-1])}{' and ' if len(named) > 1 else ''}{named[-1]}."


def _limit(explanation: _Explanation) -> str:
    """What costs most besides computing (free computing would make every plan faster), and whether memory does."""
    others = (limit for limit in explanation.limits if limit.name not in (COMPUTING, UNKNOWN))
    binding = next((limit for limit in others if limit.gain >= tuning.NOTICEABLE_SHARE), None)
    if binding is None:
        return "Nothing but computing limits the plan."
    memory = next((limit for limit in explanation.limits if limit.name == "memory of a device"), None)
    more = ""
    if memory is not None and memory is not binding:
        free = memory.gain < tuning.NOTICEABLE_SHARE
        more = "; more memory would save nothing" if free else f"; more memory could save {units.percent(memory.gain)}"
    shorter = units.percent(binding.gain)
    return f"Besides computing, {binding.name} costs most: without it T would be {shorter} shorter{more}."


def _shares(plan: Plan, times: Sequence[StageTime]) -> dict[str, float]:
    """Part -> its share of the time of all devices; collectives are summed over the mesh axes."""
    shares: dict[str, float] = {}
    for name, seconds in mean_parts(times).items():
        part = name.partition(", axis ")[0] if name.startswith(COLLECTIVES) else name
        shares[part] = shares.get(part, 0.0) + seconds / plan.predicted.iteration_seconds
    return shares


def _advice(plan: Plan, tried_changes: Sequence[Change]) -> str:
    better = [c for c in tried_changes if c.gain >= tuning.NOTICEABLE_SHARE and not c.hardware]
    if not better:
        return "No single change that was tried saves time."
    best = better[0]
    batch = ", in a larger batch" if best.plan.global_batch > plan.global_batch else ""
    return f"The best single change tried: {best.name}, {units.percent(best.gain)} less time a sample{batch}."


def _times(figure: Plots, plan: Plan, times: Sequence[StageTime]) -> None:
    """The parts of each stage, and beside them all but computing, in percent of T and with their sum."""
    total = plan.predicted.iteration_seconds
    scale, unit = units.seconds_axis(total)
    rows = {f"stage {time.stage}": dict(time.parts) for time in times}
    bars = time_bars(rows, scale=scale, of="an iteration", keys=[key(stage=time.stage) for time in times])
    figure.add(*bars)
    rest = [bar for bar in bars if bar["name"] not in (COMPUTE, UNKNOWN)]
    figure.add(*(bar | {"x": [100 * x * scale / total for x in bar["x"]], "showlegend": False} for bar in rest), col=2)
    shares = [100 * sum(of) * scale / total for of in zip(*(bar["x"] for bar in rest), strict=True)]
    figure.add(sums(shares, list(rows), [units.percent(x / 100) for x in shares]), col=2)
    figure.x(1, 1, title=unit, zeroline=False)
    figure.x(1, 2, title="% of T", span=(0, 1.2 * max([*shares, 0.01])), zeroline=False)
    figure.y(1, autorange="reversed")


def _bars(
    figure: Plots,
    column: int,
    named: Sequence[tuple[str, float]],
    color: str,
    hover: Sequence[str],
    keys: Sequence[str] | None,
) -> None:
    """The gain of each; a click on the bar of a plan of the history shows that plan."""
    gains, characters = [gain for _, gain in named], _NAME_CHARACTERS[column - 1]
    shown = ["<br>".join(wrap(n, characters, break_on_hyphens=False, break_long_words=False)) for n, _ in named]
    colors, ends = [color if gain > 0 else faint for gain in gains], [max(0.0, 100 * gain) for gain in gains]
    looks = {"name": ("limits", "changes")[column - 1], "keys": keys, "listed": False}
    texts = [units.percent(g).replace("-", "−") if abs(g) >= tuning.NOTICEABLE_SHARE else "0 %" for g in gains]
    bars = bars_across([100 * gain for gain in gains], shown, colors, hover=hover, **looks)
    figure.add(bars, sums(ends, shown, texts), row=2, col=column)
    largest, least = max([*ends, 0.01]), 100 * min([*gains, 0.0])
    figure.x(2, column, title="%", span=(1.05 * least, largest + 0.4 * (largest - least)))
    figure.y(2, column, autorange="reversed")


def _explain(plan: Plan, tried: Sequence[Plan]) -> _Explanation:
    return _Explanation(time_parts(plan), limits(plan), changes(plan, tried))
