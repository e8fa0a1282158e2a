"""Two plans beside each other in words and rows: what changed, and what that did."""

from collections.abc import Sequence

from alpa_explore import units
from alpa_explore.figures import tuning
from alpa_explore.plans.phrases import logical_mesh_phrase, on_submesh
from alpa_explore.plans.plan import Plan
from alpa_explore.plans.records import PlanStage
from alpa_explore.plans.report.compare import CutGroup, PlanComparison, compare_plans
from alpa_explore.plans.report.headline import against
from alpa_explore.plans.report.tables import Row
from alpa_explore.plans.value import PlanValue
from alpa_explore.questions.explain import COLLECTIVES, COMPUTE, UNKNOWN, mean_parts, time_parts

A_SAMPLE = "a sample, on average"
"""The time that the parts of two plans with different batches add up to."""
_VERDICTS = {1: " better", -1: " worse", 0: ""}


def compare_sentence(plan: Plan, other: Plan, *, other_name: str = "the other plan") -> str:
    """What the figure shows for these plans."""
    return comparison_sentence(compare_plans(other, plan), other_name)


def compare_table(plan: Plan, other: Plan) -> list[Row]:
    """In `other` (before) and in `plan` (now): a row for each setting that differs, each headline figure, each stage,
    each part of the time, each group of operators that are cut differently, and each of these operators."""
    comparison = compare_plans(other, plan)
    rows: list[Row] = [_row("setting", d.name, d.old, d.new) for d in comparison.settings]
    figures = len(comparison.headline)
    rows += [
        _row("result" if place < figures else "time", name, before, now, change=change)
        for place, (name, before, now, change, _) in enumerate(results(comparison))
    ]
    for place in range(max(len(plan.stages), len(other.stages))):
        before, now = (stage_text(p.stages[place]) if place < len(p.stages) else "–" for p in (other, plan))
        rows.append(_row("stage", f"stage {place}", before, now, stage=place if place < len(plan.stages) else None))
    rows += [_row("cut", _group_text(group), group.old, group.new) for group in comparison.groups]
    return rows + [
        _row("operator", f"{o.name} ({o.phase})", o.old, o.new, layer=o.layer)
        for group in comparison.groups
        for o in group.operators
    ]


def comparison_sentence(comparison: PlanComparison, other_name: str) -> str:
    """The time, the settings, the stages and the operators, a sentence each."""
    settings = [str(d) for d in comparison.settings]
    more = len(settings) - tuning.COMPARE_SETTINGS
    named = "; ".join(settings[: tuning.COMPARE_SETTINGS]) + (f"; and {more} more" if more > 0 else "")
    sentences = [
        _time_phrase(comparison, other_name),
        f"Changed: {named}" if settings else "The settings are the same",
        _stages_phrase(comparison),
        _cuts_phrase(comparison),
    ]
    return " ".join(f"{sentence}." for sentence in sentences if sentence)


def both_parts(comparison: PlanComparison) -> tuple[dict[str, float], dict[str, float]]:
    """(old, new): seconds of an iteration of the average device, or of a sample where the batches differ.

    Collectives are summed over the mesh axes, which the plans may number differently. Where one plan does not know its
    strategies, compute and collectives are one part in both.
    """
    both = [mean_parts(time_parts(p)) for p in (comparison.old, comparison.new)]
    unknown = any(UNKNOWN in parts for parts in both)
    old, new = (
        _merged(parts, 1 if comparison.equal_batches else p.global_batch, unknown=unknown)
        for parts, p in zip(both, (comparison.old, comparison.new), strict=True)
    )
    return old, new


def results(comparison: PlanComparison) -> list[tuple[str, str, str, str, int]]:
    """(name, before, now, change, 1 for better or −1 for worse) of each headline figure and each part of the time."""
    rows = []
    for old, now in comparison.headline:
        words, tone = against(now, old)
        if now.name == "iteration" and not comparison.equal_batches:  # not the same work
            ratio = comparison.new.global_batch / comparison.old.global_batch
            words, tone = f"{ratio:.3g} × the samples", 0
        rows.append((now.name, old.with_band, now.with_band, f"{words}{_VERDICTS[tone]}", tone))
    old_parts, parts = both_parts(comparison)
    whole = sum(old_parts.values())
    if not comparison.equal_batches:
        old_parts, parts = ({A_SAMPLE: sum(of.values()), **of} for of in (old_parts, parts))
    for name in {**parts, **old_parts}:
        before, after = old_parts.get(name, 0.0), parts.get(name, 0.0)
        apart, texts = after - before, (units.seconds(before), units.seconds(after))
        tone = 0 if abs(apart) < tuning.NOTICEABLE_SHARE * whole else (1 if apart < 0 else -1)
        words = f"{signed(apart)}{_VERDICTS[tone]}"
        rows.append((name, *texts, words, tone) if texts[0] != texts[1] else (name, *texts, "", 0))
    return rows


def signed(seconds: float) -> str:
    """'−589 µs'."""
    return f"{'+' if seconds > 0 else '−'}{units.seconds(abs(seconds))}"


def stage_text(stage: PlanStage) -> str:
    """'layers 0–2 on 1×4 (logical mesh 2×2), 203 ms per microbatch, 6.3 GiB per device'."""
    seen_as = f" ({logical_mesh_phrase(stage.logical_mesh)})" if stage.logical_mesh != stage.submesh else ""
    where = on_submesh(stage.layers, stage.submesh, stage.device)
    return (
        f"{where}{seen_as}, {units.seconds(stage.latency_seconds)} per microbatch, "
        f"{units.bytes_(stage.peak_bytes)} per device"
    )


def _row(
    about: str,
    what: str,
    before: str,
    now: str,
    *,
    change: str = "",
    stage: int | None = None,
    layer: int | None = None,
) -> Row:
    return {
        "about": about,
        "what": what,
        "stage": stage,
        "layer": layer,
        "before": before,
        "now": now,
        "change": change,
    }


def _merged(parts: dict[str, float], samples: int, *, unknown: bool) -> dict[str, float]:
    """The parts in seconds of a sample, without the mesh axes in the names of collectives."""
    merged: dict[str, float] = {}
    for name, seconds in parts.items():
        collective = name.startswith(COLLECTIVES)
        part = UNKNOWN if unknown and (collective or name == COMPUTE) else name
        part = part.partition(", axis ")[0] if collective else part
        merged[part] = merged.get(part, 0.0) + seconds / samples
    return merged


def _time_phrase(comparison: PlanComparison, other_name: str) -> str:
    """'An iteration takes 2 s, 5 % less than with the other plan (2.1 s), mostly less …'."""
    old_parts, parts = both_parts(comparison)
    before, now = sum(old_parts.values()), sum(parts.values())
    share = now / before - 1
    what = f"{'An iteration' if comparison.equal_batches else 'A sample'} takes {units.seconds(now)}"
    if abs(share) < tuning.NOTICEABLE_SHARE:
        return f"{what}, as long as with {other_name}"
    phrase = (
        f"{what}, {units.percent(abs(share))} {'less' if share < 0 else 'more'} than with {other_name} "
        f"({units.seconds(before)})"
    )
    apart = {name: parts.get(name, 0.0) - old_parts.get(name, 0.0) for name in {**old_parts, **parts}}
    largest = max(apart, key=lambda name: abs(apart[name]))
    return f"{phrase}; the largest difference is in {largest}: {signed(apart[largest])}"


def _stages_phrase(comparison: PlanComparison) -> str:
    old, new = comparison.old.stages, comparison.new.stages
    count = f"{len(new)} stage{'' if len(new) == 1 else 's'}"
    if len(old) != len(new):
        return f"{count} instead of {len(old)}"
    pairs = list(zip(old, new, strict=True))
    apart = {
        "layers": [b.index for a, b in pairs if a.layers != b.layers],
        "submesh": [b.index for a, b in pairs if a.submesh != b.submesh],
        "devices": [b.index for a, b in pairs if a.device != b.device],
        "logical mesh": [b.index for a, b in pairs if a.submesh == b.submesh and a.logical_mesh != b.logical_mesh],
    }
    named = [f"{what} in {_numbers(stages)}" for what, stages in apart.items() if stages]
    if not named:
        return f"{count} as before, on the same submeshes"
    return f"{count} as before, with other {', other '.join(named)}"


def _numbers(stages: Sequence[int]) -> str:
    """'stage 2', 'stages 0, 3', '5 of them'."""
    if len(stages) > tuning.COMPARE_STAGES:
        return f"{len(stages)} of them"
    return f"stage{'' if len(stages) == 1 else 's'} {', '.join(map(str, stages))}"


def _cuts_phrase(comparison: PlanComparison) -> str:
    """'12 of 168 operators are cut differently: 8 addmm, 4 bmm'."""
    total, count = sum(comparison.common.values()), len(comparison.operators)
    if not total:
        return ""
    known = _operator_count(comparison.new)
    compared = f"{total:,} operators" if total == known else f"{total:,} operators that can be compared"
    moved = f"; {comparison.moved:,} have the same cut on other devices" if comparison.moved else ""
    if not count:
        return f"None of the {compared} is cut differently{moved}"
    kinds: dict[str, int] = {}
    for group in comparison.groups:
        kinds[_kind(group.op)] = kinds.get(_kind(group.op), 0) + len(group.operators)
    shown = list(kinds.items())[: tuning.COMPARE_KINDS]
    rest = count - sum(number for _, number in shown)
    named = ", ".join([f"{number:,} {kind}" for kind, number in shown] + ([f"{rest:,} others"] if rest else []))
    return f"{count:,} of {compared} {'is' if count == 1 else 'are'} cut differently: {named}{moved}"


def _operator_count(plan: PlanValue) -> int:
    return sum(len(stage.operators) for stage in plan.stages)


def _kind(op: str) -> str:
    """'aten.addmm.default' -> 'addmm'."""
    return op.split(".")[1] if "." in op else op


def _group_text(group: CutGroup) -> str:
    """'6 × addmm (forward), layers 0, 1, 2'."""
    layers = sorted({o.layer for o in group.operators})
    where = f"layer{'' if len(layers) == 1 else 's'} {', '.join(map(str, layers))}"
    return f"{len(group.operators)} × {_kind(group.op)} ({group.phase}), {where}"
