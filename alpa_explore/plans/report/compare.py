"""Two plans compared: their settings, their headline figures, and the operators that they cut differently.

An operator is cut alike where every device of its submesh holds the same piece of each input and output, whatever the
specs are called (see `sharding.spec`); the place of the submesh in the cluster does not matter. On submeshes of
different shape no device corresponds to another, so the same pieces in another order are the same cut, on other
devices. An operator that every device runs whole is whole everywhere. Operators are matched by the names that capture
gives them; those that only one of the plans has, or whose specs one of them does not know, are left out. Plans of
different models have no operators in common, whatever their names are.

Beside it: plans that were tried, with the settings in which they differ and what each of them gives; and what was tried
and has no plan, with the reason in a few words.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from alpa_explore import units
from alpa_explore.errors import AlpaExploreError, InfeasiblePlanError
from alpa_explore.inter_op.options import phrases
from alpa_explore.plans.phrases import logical_mesh_phrase, precision_phrase
from alpa_explore.plans.records import PlanOperator, PlanStage
from alpa_explore.plans.report.headline import HeadlineFigure, headline
from alpa_explore.plans.report.tables import Row, row_of
from alpa_explore.plans.report.text import fullest
from alpa_explore.plans.value import PlanValue
from alpa_explore.sharding.spec import Tiling, tiling
from alpa_explore.units import SMALL, printable

WHOLE = "whole on each device"


class Difference(NamedTuple):
    """One setting and its values in the old and in the new plan."""

    name: str
    old: str
    new: str

    def __str__(self) -> str:
        return f"{self.name} {self.old} → {self.new}"


def differences(old: PlanValue, new: PlanValue) -> tuple[Difference, ...]:
    """Every setting in which `new` differs from `old`."""
    before, after = settings_in_words(old), settings_in_words(new)
    names = [*before, *(name for name in after if name not in before)]
    pairs = [Difference(name, before.get(name, "–"), after.get(name, "–")) for name in names]
    return tuple(pair for pair in pairs if pair.old != pair.new)


def recompute_word(plan: PlanValue) -> str:
    """What a plan was asked to recompute, in a word: 'on', 'off', a name, or 'where needed'."""
    asked = plan.options.rematerialization
    return {"auto": "where needed", "": "on" if plan.model.rematerialization else "off"}.get(asked, asked)


def settings_in_words(plan: PlanValue) -> dict[str, str]:
    """Setting -> its value, for people; options of the pipeline only where they are not the paper's."""
    o, model, cluster = plan.options, plan.model, plan.cluster
    devices = [kind.device for kind in cluster.kinds]
    return {
        "model": model.name,
        "samples per microbatch": f"{model.samples:,}",
        "B": f"{o.num_microbatches:,}",
        "precision": precision_phrase(model, cluster),
        "optimizer": model.optimizer,
        "recompute": recompute_word(plan),
        "cluster": str(cluster),
        "memory of a device": " or ".join(units.bytes_(device.memory_bytes) for device in devices),
        "peak of a device": " or ".join(units.flops_per_second(device.peak(model.precision)) for device in devices),
        "link inside a node": " or ".join(units.bytes_per_second(k.inside_node.bandwidth) for k in cluster.kinds),
        "network between nodes": units.bytes_per_second(cluster.between_nodes.bandwidth),
        "δ": f"{o.delta:g}",
        "layers": f"{o.num_layers:,}",
        "solver": o.solver,
        "boundaries": ", ".join(o.boundaries) or "clustered",
        "baseline": o.baseline or "none",
        "spec constraints": "; ".join(map(str, o.spec_constraints)) or "none",
        **phrases(o.pipeline),
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class CutOtherwise:
    """An operator that the two plans cut in different ways."""

    name: str
    op: str
    phase: str
    layer: int
    """In the new plan."""
    flops: int
    old: str
    """In the old plan: specs of its inputs → outputs, and the logical mesh."""
    new: str
    """The same in the new plan."""


@dataclass(frozen=True, kw_only=True)
class PlanComparison:
    """The differences between `old` and `new`."""

    old: PlanValue
    new: PlanValue
    settings: tuple[Difference, ...]
    headline: tuple[tuple[HeadlineFigure, HeadlineFigure], ...]
    """(old, new) of every figure that both plans have."""
    operators: tuple[CutOtherwise, ...]
    moved: int
    """Operators with the same cut on a submesh of another shape; not among `operators`."""
    common: Mapping[int, int]
    """Layer of the new plan -> number of its operators that the old plan has too; empty where the operators of a plan
    are not known, or the models have none in common."""

    @property
    def equal_batches(self) -> bool:
        """Whether an iteration is the same work in both."""
        return self.old.global_batch == self.new.global_batch

    @property
    def groups(self) -> tuple[tuple[CutOtherwise, ...], ...]:
        """`operators` by kind and by both cuts, the group with the most FLOPs first."""
        found: dict[tuple[str, str, str, str], list[CutOtherwise]] = {}
        for o in self.operators:
            found.setdefault((o.op, o.phase, o.old, o.new), []).append(o)
        return tuple(sorted(map(tuple, found.values()), key=lambda g: (-sum(o.flops for o in g), -len(g))))


def compare_plans(old: PlanValue, new: PlanValue) -> PlanComparison:
    """How `new` differs from `old`."""
    before = {figure.name: figure for figure in headline(old)}
    pairs = _pairs(old, new) if old.model.name == new.model.name else []
    common: dict[int, int] = {}
    different, moved = [], 0
    for (old_operator, old_stage), (operator, stage) in pairs:
        common[operator.layer] = common.get(operator.layer, 0) + 1
        cuts = tuple(_cut(o, s) for o, s in ((old_operator, old_stage), (operator, stage)))
        if _alike(*cuts):
            continue
        if old_stage.submesh != stage.submesh and _same_pieces(*cuts):
            moved += 1
            continue
        different.append(
            CutOtherwise(
                name=operator.name,
                op=operator.op,
                phase=operator.phase,
                layer=operator.layer,
                flops=operator.flops,
                old=_in_words(old_operator, old_stage),
                new=_in_words(operator, stage),
            )
        )
    return PlanComparison(
        old=old,
        new=new,
        settings=differences(old, new),
        operators=tuple(different),
        moved=moved,
        common=common,
        headline=tuple((before[f.name], f) for f in headline(new) if f.name in before),
    )


_Placed: TypeAlias = tuple[PlanOperator, PlanStage]


def _pairs(old: PlanValue, new: PlanValue) -> Iterator[tuple[_Placed, _Placed]]:
    """The operators that both plans have, in the order of the new one.

    A weight that several stages read has an update in each of them: these are matched in order, and not at all where
    some stage does not know its operators.
    """
    before, after = _operators(old), _operators(new)
    partial = not all(stage.operators for plan in (old, new) for stage in plan.stages)
    for name, placed in after.items():
        previous = before.get(name, [])
        if not partial or len(placed) == len(previous) == 1:
            yield from zip(previous, placed, strict=False)


def _operators(plan: PlanValue) -> dict[str, list[_Placed]]:
    operators: dict[str, list[_Placed]] = {}
    for stage in plan.stages:
        for operator in stage.operators:
            operators.setdefault(operator.name, []).append((operator, stage))
    return operators


def _cut(operator: PlanOperator, stage: PlanStage) -> tuple[Tiling, ...]:
    """The pieces of every device, for each input and output."""
    return tuple(
        tiling(spec, tuple(stage.logical_mesh), tuple(stage.devices)) for spec in (*operator.inputs, *operator.outputs)
    )


def _alike(old: Sequence[Tiling], new: Sequence[Tiling]) -> bool:
    return old == new or (_whole(old) and _whole(new))


def _same_pieces(old: Sequence[Tiling], new: Sequence[Tiling]) -> bool:
    """Whether as many devices hold the same pieces, whichever devices these are."""
    return Counter(zip(*old, strict=True)) == Counter(zip(*new, strict=True))


def _whole(cut: Sequence[Tiling]) -> bool:
    return all(piece.whole for pieces in cut for piece in pieces)


def _in_words(operator: PlanOperator, stage: PlanStage) -> str:
    """'S0R, RR → S0R on logical mesh 1×4'."""
    if _whole(_cut(operator, stage)):
        return WHOLE
    return f"{', '.join(operator.inputs)} → {', '.join(operator.outputs)} on {_mesh_in_words(stage)}"


def _mesh_in_words(stage: PlanStage) -> str:
    return logical_mesh_phrase(stage.logical_mesh) if len(stage.devices) > 1 else "one device"


class NoPlan(NamedTuple):
    """A baseline, or a change of the settings, for which there is no plan."""

    name: str
    """'data-parallel', or 'layers 6 → 12'."""
    reason: str
    """'needs 24.5 GiB of 16 GiB'."""
    model: str
    """The name of the model."""

    def __str__(self) -> str:
        return f"{self.name}: {self.reason}"


def reason_of(error: Exception, memory_bytes: int) -> str:
    """Why there is no plan on devices with this much memory, without the remedy."""
    if isinstance(error, InfeasiblePlanError) and error.over_bytes is not None:
        return f"needs {units.bytes_(memory_bytes + error.over_bytes)} of {units.bytes_(memory_bytes)}"
    if isinstance(error, AlpaExploreError):
        return f"{error.what[0].lower()}{error.what[1:]}: {error.found}"
    return f"{type(error).__name__}: {error}"


def tried_table(plan: PlanValue, tried: Sequence[PlanValue]) -> list[Row]:
    """A row for each of `tried`: its number, the settings that are not the same in all of them, as text, and its
    figures. `time_fraction` is the time of a sample over that of `plan`, less 1."""
    worded = [settings_in_words(other) for other in tried]
    names = list(dict.fromkeys(name for words in worded for name in words))
    differing = [name for name in names if len({words.get(name) for words in worded}) > 1]
    return [
        {
            "plan_number": number,
            **{name: printable(words.get(name, "–")) for name in differing},
            **_figures(plan, other),
        }
        for number, (other, words) in enumerate(zip(tried, worded, strict=True))
    ]


def change_text(fraction: float) -> str:
    """−0.31 -> '−31 %'; '±0' for less than 0.05 %."""
    if abs(fraction) < SMALL:
        return "±0"
    return f"{'+' if fraction > 0 else '−'}{units.percent(abs(fraction))}"


def _figures(plan: PlanValue, other: PlanValue) -> Row:
    full = fullest(other)
    return {
        "iteration_seconds": other.predicted.iteration_seconds,
        "time_fraction": plan.samples_per_second / other.samples_per_second - 1,
        **row_of(
            other,
            "samples_a_second=samples_per_second mfu_fraction=flops_utilization "
            "peak_bytes=predicted.peak_bytes_per_device",
        ),
        "memory_fraction": full.peak_bytes / other.device_of(full).memory_bytes,
        "bubble_fraction": other.predicted.bubble_fraction,
        "stages": len(other.stages),
    }
