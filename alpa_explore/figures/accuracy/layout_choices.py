"""Does the planner choose well? The measured time of the layout predicted to be best, over that of the best one."""

from statistics import fmean, median

from alpa_explore import units
from alpa_explore.accuracy.choices import Choice, choices
from alpa_explore.accuracy.measured_run import MeasuredRun
from alpa_explore.accuracy.record import Record
from alpa_explore.figures.accuracy.marks import NO_RUNS, beside_legend, recomputed, source_look
from alpa_explore.figures.marks import Plots, points
from alpa_explore.figures.style import Drawing, faint, ink, lines, safe, with_theme
from alpa_explore.plans.report.tables import Row, row_of


@with_theme
def layout_choices_figure(record: Record) -> Drawing:
    """A mark for each group of layouts of one model on one number of GPUs, in the order of the regret.

    The mark is the time of the predicted best above that of the best, the dash above it that of the layout in the
    middle, which a choice without knowledge would have.
    """
    found, figure = _ordered(record), Plots()
    if found:
        hover = [f"the layout in the middle takes {_more(c.median_regret)} the best" for c in found]
        middle = [100 * choice.median_regret for choice in found]
        places, dash = range(1, len(found) + 1), {"edge": (None, 2), "hover": hover}
        figure.add(points(list(places), middle, faint, "line-ew-open", 9, name="the layout in the middle", **dash))
        for source in record.sources:
            own = [(place, c) for place, c in zip(places, found, strict=True) if c.best.source == source.name]
            if own:
                color, symbol = source_look(record, source.name)
                regrets, hover = [100 * c.regret for _, c in own], [_hover(record, c) for _, c in own]
                looks = {"name": safe(source.label), "edge": (ink, 1), "cliponaxis": False}
                figure.add(points([place for place, _ in own], regrets, color, symbol, hover=hover, **looks))
        top = max(max(c.regret for c in found), median(c.median_regret for c in found), 0.05)
        figure.y(title="time above the best", span=(-4 * top, 112 * top), ticksuffix=" %")
        figure.x(title="groups of layouts, in this order", span=(0, len(found) + 1))
    return figure.figure(layout_choices_sentence(record), **beside_legend())


def layout_choices_sentence(record: Record) -> str:
    """What the figure shows."""
    found = choices(record.runs)
    if not found:
        return NO_RUNS
    near = sum(choice.regret <= 0.05 for choice in found)
    return (
        f"{len(found)} groups of measured layouts of one model and number of GPUs: the predicted best takes "
        f"{units.percent(fmean(c.regret for c in found))} longer than the best on average, a layout in the middle "
        f"{units.percent(fmean(c.median_regret for c in found))}; at most 5 % in {near} groups."
    )


def layout_choices_table(record: Record) -> list[Row]:
    """One row per group, the worst choice first."""
    columns = (
        "model=best.model gpus=best.gpus device=best.device layouts predicted_best=predicted_best.layout "
        "takes_seconds=predicted_best.measured_seconds best=best.layout best_seconds=best.measured_seconds "
        "regret_fraction=regret in_the_middle_fraction=median_regret failed_before"
    )
    return [{"source": record.label(c.best.source), **row_of(c, columns)} for c in reversed(_ordered(record))]


def _ordered(record: Record) -> list[Choice]:
    return sorted(choices(record.runs), key=lambda c: (c.regret, c.median_regret))


def _more(regret: float) -> str:
    return "as long as" if regret < 1e-9 else f"{units.percent(regret)} longer than"


def _hover(record: Record, choice: Choice) -> str:
    best, picked = choice.best, choice.predicted_best
    same = choice.regret < 1e-9
    return lines(
        f"<b>{safe(best.model)} on {best.gpus:,} × {safe(best.device)}</b>",
        f"{choice.layouts:,} layouts that ran, {safe(record.label(best.source))}",
        f"predicted best: {_layout(picked)}, measured {units.seconds(picked.measured_seconds or 0.0)}",
        "it is the best" if same else f"best: {_layout(best)}, measured {units.seconds(best.measured_seconds or 0.0)}",
        "" if same else f"it takes {_more(choice.regret)} the best; one in the middle {_more(choice.median_regret)} it",
        f"{choice.failed_before:,} that failed were said to fit and to be faster" if choice.failed_before else "",
    )


def _layout(run: MeasuredRun) -> str:
    batch = "" if run.global_batch is None else f" (batch {run.global_batch:,})"
    extra = f", {recomputed(run)}" if run.recompute else ""
    return f"{safe(run.layout)}{safe(extra)}{batch}"
