"""Where the model is wrong and why: the kinds of runs that add most to the error of their source."""

from alpa_explore import units
from alpa_explore.accuracy.record import Record, stored_reasons
from alpa_explore.accuracy.weak_spots import WeakSpot, weak_spots
from alpa_explore.figures.accuracy.marks import NO_RUNS, in_two_lines, signed_percent, source_look
from alpa_explore.figures.marks import Plots, bars_across, labels, points
from alpa_explore.figures.style import Drawing, ink, lines, safe, with_theme
from alpa_explore.plans.report.tables import Row, row_of

_ROW, _FRAME = 34, 130
"""Pixels of a row, and of axis and legend."""


@with_theme
def weak_spots_figure(record: Record) -> Drawing:
    """A bar for the mean error of each kind of runs, with the mean error of its whole source as a mark."""
    spots, figure = _spots(record), Plots()
    if spots:
        names = in_two_lines([(safe(f"{s.feature} {s.value}"), safe(record.label(s.source))) for s in spots])
        hover = [_hover(record, spot) for spot in spots]
        texts = [f"{spot.errors.runs:,} runs, {signed_percent(spot.errors.bias)}" for spot in spots]
        colors = [source_look(record, spot.source)[0] for spot in spots]
        looks = labels(texts, "outside", 11) | {"cliponaxis": False, "marker": {"color": colors, "opacity": 0.8}}
        means = [100 * spot.errors.mean for spot in spots]
        figure.add(bars_across(means, names, colors, name="mean error of these runs", hover=hover) | looks)
        of_sources, looks = [100 * spot.of_source.mean for spot in spots], {"edge": (None, 2), "hover": hover}
        figure.add(points(of_sources, names, ink, "line-ns-open", 14, name="mean error of the whole source", **looks))
        longest = max(spot.errors.mean for spot in spots)
        figure.x(title="mean error of the iteration time", span=(0, 150 * longest), ticksuffix=" %")
        figure.y(autorange="reversed", automargin=True, tickfont={"size": 11}, ticklabelstandoff=6)
    height = _FRAME + _ROW * max(len(spots), 3)
    return figure.figure(weak_spots_sentence(record), height=height, bargap=0.35)


def weak_spots_sentence(record: Record) -> str:
    """What the figure shows."""
    spots = _spots(record)
    if not spots:
        return "No kind of run is predicted much worse than the others of its source." if record.runs else NO_RUNS
    worst = spots[0]
    known = sum(bool(spot.why) for spot in spots)
    reasons = f" A reason is known for {known} of them." if known else " No reason is known yet."
    return (
        f"{len(spots)} kinds of runs are predicted clearly worse than their source; most weight has "
        f"{_name(record, worst)}: mean error {units.percent(worst.errors.mean)} instead of "
        f"{units.percent(worst.of_source.mean)}.{reasons}"
    )


def weak_spots_table(record: Record) -> list[Row]:
    """One row per kind of runs, that with most weight first."""
    columns = (
        "what=feature value runs=errors.runs mean_error_fraction=errors.mean bias_fraction=errors.bias "
        "source_mean_error_fraction=of_source.mean why"
    )
    return [{"source": record.label(spot.source), **row_of(spot, columns)} for spot in _spots(record)]


def reasons_table(record: Record) -> list[Row]:
    """What people found out about the runs, for all of a source or a kind of them."""
    return [
        {
            "source": record.label(reason["source"]) if reason["source"] else "all",
            "runs": f"{reason['feature']} {reason['value']}".strip() or "all",
            "why": reason["why"],
        }
        for reason in stored_reasons()
    ]


def _spots(record: Record) -> list[WeakSpot]:
    return weak_spots(record.runs, stored_reasons())


def _name(record: Record, spot: WeakSpot) -> str:
    return f"{record.label(spot.source)}: {spot.feature} {spot.value}"


def _hover(record: Record, spot: WeakSpot) -> str:
    return lines(
        f"<b>{safe(_name(record, spot))}</b>",
        f"{spot.errors.runs:,} runs, mean error {units.percent(spot.errors.mean)}, bias "
        f"{signed_percent(spot.errors.bias)}",
        f"all {spot.of_source.runs:,} runs of the source: {units.percent(spot.of_source.mean)}",
        safe(spot.why) or "no reason is known",
    )
