"""Why a plan takes as long as it does: the parts of its time, what limits it, and what single changes would save."""

from collections.abc import Sequence

from alpa_explore import units
from alpa_explore.figures import tuning
from alpa_explore.figures.keys import key
from alpa_explore.figures.marks import Plots, bars_across, legend_below, outline, sums, time_looks
from alpa_explore.figures.style import Drawing, faint, ground, lines, with_theme
from alpa_explore.plans.plan import Plan
from alpa_explore.plans.report.tables import Row
from alpa_explore.questions import explain

_STAGE = 24
"""Pixels of a stage."""
_COLUMNS = ("about", "what", "stage", "iteration_seconds", "share_fraction", "how")


@with_theme
def why_figure(plan: Plan) -> Drawing:
    """The parts of T for each stage, and the same without compute on a scale of their own."""
    times = explain.time_parts(plan)
    height = _STAGE * max(len(times), 2)
    figure = Plots(column_widths=[0.42, 0.58], spacing=(0.2, 0), titles=("the whole iteration", "all but computing"))
    _times(figure, plan, times)
    return figure.figure(
        why_sentence(plan),
        height=height,
        above=14,
        around={"l": 160, "r": 16, "b": 112},
        barmode="stack",
        bargap=0.3,
        legend=legend_below(46, height),
        meta={"least_width": tuning.LABELLED_PIXELS},
    )


def why_sentence(plan: Plan) -> str:
    """Where the time goes, what limits the plan, and which setting that is known without planning is better."""
    return " ".join((_where(plan, explain.time_parts(plan)), _limit(plan), _advice(plan)))


def why_table(plan: Plan) -> list[Row]:
    """The parts of the time by stage, then limits (T without them), then changes (their T)."""
    planned = "planned; share of the time of a sample that is saved"
    rows = [("limit", o.name, None, o.iteration_seconds, o.gain, o.how) for o in explain.limits(plan)]
    rows += [
        ("change", o.name, None, o.plan.predicted.iteration_seconds, o.gain, planned) for o in explain.changes(plan)
    ]
    return parts_table(plan) + [dict(zip(_COLUMNS, row, strict=True)) for row in rows]


def parts_table(plan: Plan) -> list[Row]:
    """The parts of the time by stage."""
    total, how = plan.predicted.iteration_seconds, "of T, on each device of the stage"
    return [
        dict(zip(_COLUMNS, ("time", name, time.stage, seconds, seconds / total, how), strict=True))
        for time in explain.time_parts(plan)
        for name, seconds in time.parts
    ]


def _where(plan: Plan, times: Sequence[explain.StageTime]) -> str:
    """'Devices spend 87.1 % of T on compute, 5.62 % on waits (bubble) and 5.12 % on collectives inside a node.'"""
    total = plan.predicted.iteration_seconds
    parts = [(name, seconds / total) for name, seconds in explain.without_axes(explain.mean_parts(times)).items()]
    shares = sorted(parts, key=lambda part: -part[1])
    named = [
        f"{units.percent(share)}{' of T' if not place else ''} on {name}"
        for place, (name, share) in enumerate(shares[:3])
        if share >= tuning.NOTICEABLE_SHARE
    ]
    return f"Devices spend {', '.join(named[:-1])}{' and ' if len(named) > 1 else ''}{named[-1]}."


def _limit(plan: Plan) -> str:
    """What costs most besides computing (free computing would make every plan faster), and whether memory does."""
    found = explain.limits(plan)
    others = (limit for limit in found if limit.name not in (explain.COMPUTING, explain.UNKNOWN))
    binding = next((limit for limit in others if limit.gain >= tuning.NOTICEABLE_SHARE), None)
    if binding is None:
        return "Nothing but computing limits the plan."
    memory = next((limit for limit in found if limit.name == "memory of a device"), None)
    more = ""
    if memory is not None and memory is not binding:
        free = memory.gain < tuning.NOTICEABLE_SHARE
        more = "; more memory would save nothing" if free else f"; more memory could save {units.percent(memory.gain)}"
    shorter = units.percent(binding.gain)
    return f"Besides computing, {binding.name} costs most: without it T would be {shorter} shorter{more}."


def _advice(plan: Plan) -> str:
    better = [c for c in explain.changes(plan) if c.gain >= tuning.NOTICEABLE_SHARE]
    if not better:
        return "No single change that was tried saves time."
    best = better[0]
    return f"The best single change tried: {best.name}, {units.percent(best.gain)} less time a sample."


def _times(figure: Plots, plan: Plan, times: Sequence[explain.StageTime]) -> None:
    """The parts of each stage, and beside them all but computing, in percent of T and with their sum."""
    total = plan.predicted.iteration_seconds
    scale, unit = units.seconds_axis(total)
    rows = [(f"stage {time.stage}", key(stage=time.stage), dict(time.parts)) for time in times]
    names, bars = [name for name, *_ in rows], []
    for part, (color, shape) in time_looks(part for *_, parts in rows for part in parts).items():
        seconds = [parts.get(part, 0.0) for *_, parts in rows]
        shares = [units.percent(s / sum(parts.values())) for (*_, parts), s in zip(rows, seconds, strict=True)]
        hover = [
            lines(f"<b>{name}</b>", f"{part}: {units.seconds(s)}", f"{share} of an iteration")
            for name, s, share in zip(names, seconds, shares, strict=True)
        ]
        pattern = {"shape": shape, "fgcolor": ground, "size": 6, "solidity": 0.25}
        marker = {"color": color, "pattern": pattern, **outline((faint, 1))}
        looks = {"name": part, "hover": hover, "keys": [own for _, own, _ in rows], "marker": marker}
        bars.append(bars_across([s / scale for s in seconds], names, color, **looks))
    figure.add(*bars)
    rest = [bar for bar in bars if bar["name"] not in (explain.COMPUTE, explain.UNKNOWN)]
    figure.add(*(bar | {"x": [100 * x * scale / total for x in bar["x"]], "showlegend": False} for bar in rest), col=2)
    of_t = [100 * sum(of) * scale / total for of in zip(*(bar["x"] for bar in rest), strict=True)]
    figure.add(sums(of_t, names, [units.percent(x / 100) for x in of_t]), col=2)
    figure.x(1, 1, title=unit, zeroline=False)
    figure.x(1, 2, title="% of T", span=(0, 1.2 * max([*of_t, 0.01])), zeroline=False)
    figure.y(1, autorange="reversed")
