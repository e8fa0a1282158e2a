"""Layouts and scalings as rows and sentences: for the command line, the figures and the tables beside them."""

from __future__ import annotations

from collections.abc import Sequence

from alpa_explore import units
from alpa_explore.plans.report.tables import Row, row_of
from alpa_explore.uniform_layouts.beside_plan import PlanAsLayout
from alpa_explore.uniform_layouts.measured import MeasuredLayout
from alpa_explore.uniform_layouts.ranking import Layouts, PricedLayout, seconds_beside
from alpa_explore.uniform_layouts.scaling import Scaling, ScalingPoint
from alpa_explore.units import SMALL, printable

_DEGREES = (
    "tp=tensor pp=pipeline dp=data cp=context ep=expert expert_tp=expert_tensor microbatch microbatches "
    "interleaving=chunks zero=zero_stage recomputation=recompute"
)
_NOTICEABLE = 0.02
"""A plan and the layout that it is are priced from other graphs; by how much they may differ without a word."""


def layouts_table(layouts: Layouts, most: int | None = None, shown: Sequence[PricedLayout] | None = None) -> list[Row]:
    """One row a layout, in order; `shown` only these."""
    chosen = layouts.ranked if shown is None else shown
    best = layouts.best
    return [
        {
            "rank": number,
            **row_of(priced, "layout=words iteration_seconds=seconds"),
            "times_best": None if best is None else priced.seconds / best.seconds,
            "tokens_per_second": round(priced.tokens_per_second),
            **row_of(priced, "mfu_fraction=mfu peak_bytes=bytes fits tight reason"),
            **row_of(priced.layout, _DEGREES),
        }
        for number, priced in enumerate(chosen[:most], start=1)
    ]


def layouts_sentence(layouts: Layouts, plan: PlanAsLayout | None = None) -> str:
    """How many layouts fit, which is the fastest, and what the plan gains over it."""
    where = f"{layouts.model} on {layouts.cluster}"
    samples = f"× {layouts.sequence:,} tokens" if layouts.sequence > 1 else "samples, each counted as one token"
    batch = f"a global batch of {layouts.global_batch:,} {samples}"
    so_far = "" if layouts.whole else " so far"
    best, count = layouts.best, len(layouts.ranked)
    refused = f" There is no layout with {printable('; '.join(layouts.refused))}." if layouts.refused else ""
    if best is None:
        text = f"None of {count:,} uniform layouts{so_far} of {where} fits{_lacks(layouts)}."
        return f"{text}{_on_more_nodes(layouts)}{refused}"
    text = (
        f"{len(layouts.fitting):,} of {count:,} uniform layouts{so_far} of {where} fit with {batch}; the fastest is "
        f"{_time(layouts, best)}.{_tight(layouts, best)}{_faster(layouts, best)}{refused}"
    )
    return f"{text} {plan_sentence(plan)}" if plan is not None else text


def _tight(layouts: Layouts, best: PricedLayout) -> str:
    """' It is tight: …', or which faster one is not recommended for that."""
    band = layouts.band(best, "bytes")
    error = "the error of the prediction" if band is None else f"its error of {band.short}"
    if best.tight:
        return f" It is tight: with {error} it may need more memory than there is, and so may all others that fit."
    faster = min((p for p in layouts.fitting if p.tight), key=lambda p: p.seconds, default=best)
    if faster.seconds >= best.seconds:
        return ""
    return f" {faster.words} would take {units.seconds(faster.seconds)}, but its memory is tight."


def _faster(layouts: Layouts, best: PricedLayout) -> str:
    """' With twice the bandwidth between nodes it takes 13.1 s (−8 %).', or which other layout is fastest then."""
    faster = layouts.on_faster_links
    if faster is None:
        return ""
    where = "between nodes" if layouts.cluster.nodes > 1 else "inside the node"
    named = "it takes" if faster.layout == best.layout else f"the fastest is {faster.words}:"
    share = units.percent(1 - faster.seconds / best.seconds)
    gain = f"−{share}" if share[0].isdigit() else f"{share} less"
    gain = gain if faster.seconds < best.seconds else "no faster"
    return f" With twice the bandwidth {where} {named} {units.seconds(faster.seconds)} ({gain})."


def _time(layouts: Layouts, best: PricedLayout) -> str:
    band = layouts.band(best, "seconds")
    seconds = units.seconds(best.seconds) + ("" if band is None else f" {band.short}")
    return f"{best.words}: {seconds}, MFU {units.percent(best.mfu)} by Megatron's formula"


def _lacks(layouts: Layouts) -> str:
    nearest = layouts.nearest
    if nearest is None:
        return ""
    room = units.bytes_(layouts.cluster.device.memory_bytes)
    return f": the leanest, {nearest.words}, needs {units.bytes_(nearest.bytes)} of {room}"


def _on_more_nodes(layouts: Layouts) -> str:
    """' On 4x8:h100, 32 devices, 205 of 2,084 fit; the fastest is …', as far as that is known."""
    larger = layouts.larger
    if larger is None or larger.best is None:
        return ""
    on = f" On {larger.cluster}, {larger.cluster.devices:,} devices, {len(larger.fitting):,} of {len(larger.ranked):,}"
    so_far = "" if larger.whole else " so far"
    best = larger.best
    return f"{on}{so_far} fit; the fastest is {_time(larger, best)}.{_tight(larger, best)}{_faster(larger, best)}"


def plan_sentence(plan: PlanAsLayout) -> str:
    """'The plan, TP 2 · …, takes 12.8 s: 1.2 % less than the best uniform layout.'"""
    named = f"The plan ({plan.words}) takes {units.seconds(plan.seconds)}"
    if plan.priced is not None and abs(plan.priced.seconds / plan.seconds - 1) > _NOTICEABLE:
        named += f" ({units.seconds(plan.priced.seconds)} where it is priced as a layout)"
    if plan.gain is None:
        why = plan.incomparable or "no uniform layout fits"
        return f"{named}; the two are not compared, because {why}."
    if abs(plan.gain) < SMALL:
        return f"{named}, as long as the best uniform layout."
    if plan.best is not None and plan.priced is not None and plan.best.layout == plan.priced.layout:
        return f"{named}; it is the best uniform layout."
    if plan.gain > 0:
        return f"{named}: the best uniform layout takes {units.percent(plan.gain)} longer."
    return f"{named}: the best uniform layout takes {units.percent(-plan.gain)} less{_other_microbatch(plan)}."


def _other_microbatch(plan: PlanAsLayout) -> str:
    """Where the best layout may divide the batch otherwise than the plan was told to: how both do."""
    assert plan.best is not None, "it takes less than the plan"
    chosen = plan.best.layout.microbatch * plan.best.layout.data
    if chosen == plan.samples:
        return ""
    samples = "1 sample" if chosen == 1 else f"{chosen:,} samples"
    return f", with {samples} in a microbatch where the plan was given {plan.samples:,}"


def measured_table(measured: Sequence[MeasuredLayout]) -> list[Row]:
    """One row a measured run, beside its prediction."""
    return [
        {
            **row_of(one, "layout=words measured_seconds=seconds"),
            "predicted_seconds": None if one.priced is None else one.priced.seconds,
            "ratio": None if one.priced is None else one.priced.seconds / one.seconds,
            **row_of(one.run, "software batch=global_batch precision source"),
        }
        for one in measured
    ]


def measured_sentence(measured: Sequence[MeasuredLayout], layouts: Layouts) -> str:
    """How many measured runs of this kind there are, and the fastest; empty where there is none."""
    if not measured:
        return ""
    count, fastest = len(measured), measured[0]
    predicted = "" if fastest.priced is None else f", predicted {units.seconds(fastest.priced.seconds)}"
    scaled = "" if fastest.run.global_batch == layouts.global_batch else ", scaled to this batch"
    return (
        f"{'A measured run' if count == 1 else f'{count} measured runs'} of this kind"
        f"{'' if count == 1 else '; the fastest'}, {fastest.words}, took "
        f"{units.seconds(fastest.seconds)}{scaled} ({fastest.run.software}){predicted}."
    )


def beside_run(plan: PlanAsLayout, run: MeasuredLayout) -> str:
    """Why a plan is slower, or faster, than a measured run, in a sentence: how wrong the prediction of the run's layout
    is, and the parts in which the plan differs from that layout; empty where they cannot be compared."""
    if run.priced is None or plan.incomparable:
        return ""
    error, gap = run.priced.seconds - run.seconds, plan.seconds - run.seconds
    parts = {f"that the run's own layout is predicted too {'long' if error > 0 else 'short'}": error}
    if plan.priced is None:
        parts["another layout"] = plan.seconds - run.priced.seconds
    else:
        parts |= seconds_beside(plan.priced, run.priced)
        parts["its price operator by operator"] = plan.seconds - plan.priced.seconds
    listed = sorted((part for part in parts.items() if abs(part[1]) >= SMALL * plan.seconds), key=lambda p: -abs(p[1]))
    reasons = ", ".join(f"{'+' if s > 0 else '−'} {units.seconds(abs(s))} {name}" for name, s in listed)
    more = f"{units.seconds(abs(gap))} {'more' if gap > 0 else 'less'} than the run"
    return f"The plan takes {more}: {reasons}." if listed else "The plan takes as long as the run."


def scaling_table(scaling: Scaling) -> list[Row]:
    """One row for each device and number of nodes."""
    priced = bool(scaling.prices)
    return [
        {
            "place": str(point.cluster),
            **row_of(point, "device nodes=cluster.nodes devices=cluster.devices"),
            "state": point_words(point),
            "iteration_seconds": None if (best := priced_best(point)) is None else best.seconds,
            "tokens_per_second": None if best is None else round(best.tokens_per_second),
            "mfu_fraction": None if best is None else best.mfu,
            "efficiency_fraction": point.efficiency,
            **({"dollars_per_billion_tokens": point.dollars_per_billion_tokens} if priced else {}),
            "layout": "" if best is None else best.words,
        }
        for point in scaling.points
    ]


def priced_best(point: ScalingPoint) -> PricedLayout | None:
    """The fastest layout of a point whose layouts are all priced."""
    return point.best if point.state == "priced" else None


def point_words(point: ScalingPoint) -> str:
    """'fits', 'lacks 1.2 GiB a device', 'refused: …', 'not known yet'."""
    if point.state == "does not fit":
        return f"lacks {units.bytes_(point.missing_bytes)} a device"
    if point.state == "refused":
        return point.reason
    return {"waiting": "not known yet", "fits": "fits, fastest not known yet"}.get(point.state, "fits")


def scaling_sentence(scaling: Scaling) -> str:
    """Where the model fits, and where it is fastest, and cheapest where prices are given."""
    known = [point for point in scaling.points if priced_best(point) is not None]
    waiting = sum(point.state in ("waiting", "fits") for point in scaling.points)
    left = f" {waiting} of {len(scaling.points)} clusters are not known yet." if waiting else ""
    if not known:
        lacks = [p for p in scaling.points if p.state == "does not fit"]
        fitting = [str(p.cluster) for p in scaling.points if p.state == "fits"]
        if fitting:
            return f"{scaling.model} fits on {', '.join(fitting)}; how fast it is there is not known yet."
        if not lacks:
            return (
                f"Nothing is known of {scaling.model} yet.{left}" if waiting else f"{scaling.model} has no layout here."
            )
        least = min(lacks, key=lambda point: point.missing_bytes)
        return f"{scaling.model} fits on none of them: on {least.cluster} it {point_words(least)}.{left}"
    smallest = [p for d in scaling.devices if (p := scaling.smallest(d)) is not None and p in known]
    fits = ", ".join(f"{p.cluster.devices:,} {p.device.upper()}" for p in smallest)
    fastest = max(known, key=_pace)
    text = f"{scaling.model} fits from {fits} on; fastest on {fastest.cluster}, {_pace(fastest):,.0f} tokens/s"
    if fastest.efficiency is not None and fastest.efficiency < 1 - SMALL:
        text += f" with an efficiency of {units.percent(fastest.efficiency)}"
    costs = [(p.dollars_per_billion_tokens, p) for p in known if p.dollars_per_billion_tokens is not None]
    if costs:
        dollars, cheapest = min(costs, key=lambda pair: pair[0])
        text += f"; cheapest on {cheapest.cluster}, {dollars:,.0f} dollars for a billion tokens"
    return f"{text}.{left}"


def _pace(point: ScalingPoint) -> float:
    assert point.best is not None, "of points that are known"
    return point.best.tokens_per_second
