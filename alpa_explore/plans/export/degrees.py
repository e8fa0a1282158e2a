"""plan -> degrees: a plan in the numbers that frameworks are configured with, and what these numbers leave out.

Frameworks run one layout: every stage has as many devices as the others, which are numbered tensor × context × data ×
pipeline (neighbours are tensor parallel), and every operator of a stage is divided alike. A plan of the planner need
not be of that form. Where it is not, the nearest such layout is taken: the degrees of most stages, data parallelism
where devices repeat the same work.
`PlanDegrees.limits` has one entry for each such place; a target adds what it cannot express itself.
"""

import itertools
import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from alpa_explore import units
from alpa_explore.errors import OptionError
from alpa_explore.plans.phrases import ranges, submesh_phrase
from alpa_explore.plans.records import PlanStage
from alpa_explore.plans.report.parallelism import MOST, StageDegrees, axis_uses
from alpa_explore.plans.value import PlanValue
from alpa_explore.units import printable

_BLOCK = re.compile(r"(?:^|\.)(\d+)(?:\.|$)")
"""The first number in the name of a module is that of its block: h.3.attention.q, model.layers.3.mlp."""
_NUMBERED = ("tensor", "context", "data", "replicated")
"""Kinds of uses in the order in which frameworks number devices, neighbours first; repeated work becomes data."""
_DIVIDED = ("optimizer state", "optimizer state", "gradients", "weights")
"""For each ZeRO stage what it divides beyond the one before; stage 0 divides nothing."""
TOLERANCE = 0.03
"""Of seconds and bytes: what a layout that was exported may differ by from the plan and still be called the same."""


class Limit(NamedTuple):
    """Something of a plan that an export does not express."""

    what: str
    """What the plan has."""
    instead: str
    """What the exported file does."""

    def __str__(self) -> str:
        return f"{self.what}: {self.instead}"


class Limits(list[Limit]):
    """Limits, as they are found."""

    def note(self, what: str, instead: str) -> None:
        """Add one."""
        self.append(Limit(what, instead))


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanDegrees:
    """The layout of a plan: tensor × context × data × pipeline devices are all of the cluster."""

    tensor: int
    context: int
    data: int
    pipeline: int
    replicas: int
    """Groups of data-parallel devices that hold all weights each, where weights are sharded; else 1."""
    expert: int
    """Devices that hold different experts."""
    expert_tensor: int
    """Devices that share each matrix of an expert."""
    zero_stage: int
    sequence_parallel: bool
    exchange: str
    """How context parallel devices exchange keys and values: '', 'ring', 'all-gather' or 'Ulysses'."""
    zigzag: bool
    """Whether they share sequences in zig-zag order."""
    schedule: str
    """A name of `schedules.catalog`; '1f1b' where there is one stage."""
    chunks: int
    """Runs of blocks on each stage; more than 1 under an interleaved schedule or a V shape."""
    blocks: tuple[tuple[int, ...], ...]
    """Blocks of each run, in the order of the model; empty where modules have no numbers, and for equal stages in place
    of the plan's unequal ones."""
    recomputation: str
    """A name of `intra_op.stage.recomputation`; 'none' for nothing."""
    recomputed_blocks: int
    """Blocks of a stage that 'layers' or 'half' recompute: the most of any stage; 0 for other names."""
    precision: str
    low_precision: str
    """A recipe of `cluster.precisions`; '' for none."""
    microbatch: int
    """Samples of a microbatch on one device."""
    microbatches: int
    sequence: int
    """Positions of a sample; 0 for a model without tokens."""
    devices_per_node: int
    nodes: int
    limits: tuple[Limit, ...]

    @property
    def devices(self) -> int:
        """All of them."""
        return self.tensor * self.context * self.data * self.pipeline

    @property
    def global_batch(self) -> int:
        """Samples of an iteration."""
        return self.microbatch * self.data * self.microbatches

    @property
    def shards(self) -> int:
        """Data-parallel devices among which a replica is divided."""
        return self.data // self.replicas

    @property
    def equal_blocks(self) -> bool:
        """Whether all runs have equally many blocks."""
        return len({len(run) for run in self.blocks}) <= 1


@dataclass(frozen=True, slots=True, kw_only=True)
class PricedAgain:
    """What the layout of an export takes by the prices of the plan."""

    seconds: float = 0.0
    """T."""
    bytes: float = 0.0
    """Peak of the fullest device."""
    reason: str = ""
    """Why seconds and bytes are not known: 'needs 93 GiB of 80 GiB'."""
    fits: bool = True
    """False where the reason is that memory."""

    def limit(self, plan: PlanValue) -> Limit | None:
        """What differs by more than `TOLERANCE` from the plan; None where nothing does."""
        if not self.fits:
            return Limit("That it fits in memory", f"by the same prices this layout {self.reason}")
        if self.reason:
            return Limit("Its seconds and bytes", f"this layout was not priced again: {self.reason}")
        planned = plan.predicted.iteration_seconds, plan.predicted.peak_bytes_per_device
        changes = [found / of - 1 for found, of in zip((self.seconds, self.bytes), planned, strict=True)]
        if all(abs(change) <= TOLERANCE for change in changes):
            return None
        seconds, size = (f"{'+' if c > 0 else '−'}{units.percent(abs(c))}" for c in changes)
        return Limit(
            f"{units.seconds(planned[0])} and {units.bytes_(planned[1])}",
            f"by the same prices this layout takes {units.seconds(self.seconds)} ({seconds}) and "
            f"{units.bytes_(self.bytes)} ({size})",
        )


def plan_degrees(plan: PlanValue, again: PricedAgain | None = None) -> PlanDegrees:
    """The degrees of `plan`, and among the limits what they cost by `again`. OptionError where it has no strategies."""
    stages = plan.interleaved or plan.stages
    if not all(axis_uses(s) or len(s.devices) == 1 for s in plan.stages) or not all(s.operators for s in stages):
        raise OptionError(
            "The plan does not record all strategies",
            found="stages without operators, in a plan that was read from a file and planned again",
            remedy="Plan again: solved problems are cached, so that is quick.",
        )
    limits = Limits()
    _of_the_cluster(plan, limits)
    _of_the_order(plan, limits)
    _of_the_strategies(plan, limits)
    if again is not None and (differs := again.limit(plan)) is not None:
        limits.insert(0, differs)
    layout = _layout(plan, limits)
    recomputation, recomputed = _recomputation(plan, limits)
    tensor, context, data = layout["tensor"], layout["context"], layout["data"]
    samples = plan.model.samples
    if samples % data:
        limits.note(
            f"A microbatch of {samples:,} samples for {data} data-parallel devices",
            f"each takes {max(samples // data, 1)}, so that an iteration has another batch",
        )
    uses = [use for stage in plan.stages for use in axis_uses(stage)]
    multiple = layout["pipeline"] > 1
    alike = len({len(stage.devices) for stage in plan.stages}) == 1
    return PlanDegrees(
        tensor=tensor,
        context=context,
        data=data,
        pipeline=layout["pipeline"],
        replicas=layout["replicas"],
        expert=layout["expert"],
        expert_tensor=layout["expert_tensor"],
        zero_stage=layout["zero"],
        sequence_parallel=tensor > 1 and any(use.sequence for use in uses),
        exchange=next((use.exchange for use in uses if use.exchange), "") if context > 1 else "",
        zigzag=context > 1 and (plan.model.zigzag > 1 or any(use.zigzag for use in uses)),
        schedule=plan.options.pipeline.schedule if multiple else "1f1b",
        chunks=len(stages) // len(plan.stages) if multiple else 1,
        blocks=_blocks(stages, limits) if alike else (),
        recomputation=recomputation,
        recomputed_blocks=recomputed,
        precision=plan.model.precision,
        low_precision=plan.cluster.software.low_precision,
        microbatch=max(samples // data, 1),
        microbatches=plan.options.num_microbatches,
        sequence=plan.model.tokens // samples if plan.model.tokens > samples else 0,
        devices_per_node=plan.cluster.devices_per_node,
        nodes=plan.cluster.nodes,
        limits=tuple(limits),
    )


def block_of(module: str) -> int | None:
    """The number of the block that a module is part of; None outside of blocks."""
    found = _BLOCK.search(module)
    return int(found.group(1)) if found else None


def all_blocks(stages: Sequence[PlanStage]) -> list[int]:
    """The numbers of all blocks, ascending."""
    found = {block_of(o.module) for stage in stages for o in stage.operators if o.phase == "forward"}
    return sorted(block for block in found if block is not None)


def _of_the_cluster(plan: PlanValue, limits: Limits) -> None:
    if plan.cluster.others:
        kinds = ", ".join(f"{kind.nodes} × {printable(kind.device.name)}" for kind in plan.cluster.kinds)
        instead = "all devices are treated alike; start the ranks in the order of the plan's stages"
        limits.note(f"Unlike nodes ({kinds})", instead)


def _of_the_order(plan: PlanValue, limits: Limits) -> None:
    """Stages whose mesh has a use on an axis outside of one that frameworks number after it."""
    renumbered: dict[str, list[int]] = {}
    for stage in plan.stages:
        for outer, inner in itertools.pairwise(axis_uses(stage)):
            if _NUMBERED.index(outer.kind) < _NUMBERED.index(inner.kind):
                said = f"{outer.kind} parallel over axis {outer.axis}, outside of {inner.kind} parallel"
                renumbered.setdefault(said, []).append(stage.index)
    for said, found in renumbered.items():
        limits.note(
            f"Other neighbours ({_listed({said: found})})",
            "devices are renumbered, tensor parallel ones side by side: the collectives of both axes run over other "
            "links than in the plan, with other times",
        )


def _listed(stages_of: Mapping[str, Sequence[int]]) -> str:
    """'stages 0–3: …; stage 4: …'."""
    return "; ".join(f"stage{'s' * (len(s) > 1)} {ranges(s)}: {said}" for said, s in stages_of.items())


def _of_the_strategies(plan: PlanValue, limits: Limits) -> None:
    """Axes along which not every product follows the use, and specs that the user fixed."""
    mixed: dict[str, list[int]] = {}
    partly: dict[str, list[int]] = {}
    for stage in plan.stages:
        for use in axis_uses(stage):
            if use.share < MOST:
                said = f"{units.percent(1 - use.share)} of the FLOPs are divided otherwise along a {use.kind} axis"
                mixed.setdefault(said, []).append(stage.index)
            if use.kind in ("data", "context") and use.stored < MOST:
                divided = use.stored if use.zero else 1 - use.stored
                said = (
                    f"{_DIVIDED[use.zero]} in shards along a {use.kind} axis for {units.percent(divided)} of the bytes"
                )
                partly.setdefault(said, []).append(stage.index)
    if partly:
        limits.note(
            f"A choice for each weight of what is stored in shards ({_listed(partly)})",
            "all weights of a stage are stored alike, with other memory than the plan's",
        )
    if mixed:
        limits.note(f"A strategy for each operator ({_listed(mixed)})", "all operators of a stage are divided alike")
    if plan.options.spec_constraints:
        limits.note(f"{len(plan.options.spec_constraints)} specs fixed by hand", "the framework's own sharding")


def _layout(plan: PlanValue, limits: Limits) -> dict[str, int]:
    """The degrees of one layout for all stages: those of most devices where stages differ."""
    found = [_of_stage(stage) for stage in plan.stages]
    sizes = {len(stage.devices) for stage in plan.stages}
    for stage, layout in zip(plan.stages, found, strict=True):
        if layout["replicated"] > 1:
            limits.note(
                f"{layout['replicated']} devices of stage {stage.index} do the same work",
                "they are data parallel, each with fewer samples",
            )
    votes: Counter[tuple[tuple[str, int], ...]] = Counter()
    for stage, layout in zip(plan.stages, found, strict=True):
        votes[tuple(layout.items())] += len(stage.devices)
    chosen = dict(votes.most_common(1)[0][0])
    chosen["pipeline"] = len(plan.stages)
    if len(sizes) > 1:
        return _of_unequal_stages(plan, chosen, limits)
    if len(votes) > 1:
        limits.note(
            f"Stages with different layouts ({'; '.join(_words(dict(layout)) for layout in votes)})",
            f"all stages have {_words(chosen)}",
        )
    return {**chosen, "data": chosen["data"] * chosen["replicated"]}


def _of_stage(stage: PlanStage) -> dict[str, int]:
    uses = axis_uses(stage)
    degrees = StageDegrees.of(stage, uses)
    whole = (use.size for use in uses if use.kind == "data" and degrees.zero == 3 and use.zero < 3)
    return {**degrees._asdict(), "replicas": math.prod(whole)}


def _of_unequal_stages(plan: PlanValue, chosen: dict[str, int], limits: Limits) -> dict[str, int]:
    """Stages of equally many devices in place of unequal ones, with tensor and context degrees as near as divide."""
    devices, stages = plan.cluster.devices, len(plan.stages)
    pipeline = max(n for n in range(1, stages + 1) if devices % n == 0)
    each = devices // pipeline
    tensor = math.gcd(chosen["tensor"], each)
    context = math.gcd(chosen["context"], each // tensor)
    data = each // tensor // context
    shapes = ", ".join(submesh_phrase(s.submesh, s.device) for s in plan.stages)
    unequal = Limit(
        f"Stages on unequal submeshes ({shapes})",
        f"{pipeline} stage{'s' * (pipeline > 1)} of {each} devices each, with blocks divided equally: "
        "another layout than the plan's, with other times and memory",
    )
    limits.insert(0, unequal)  # the others matter less
    return {
        **chosen,
        "pipeline": pipeline,
        "tensor": tensor,
        "context": context,
        "data": data,
        "replicas": math.gcd(chosen["replicas"], data),
        "expert": math.gcd(chosen["expert"], each),
        "expert_tensor": math.gcd(chosen["expert_tensor"], tensor),
    }


def _words(layout: dict[str, int]) -> str:
    named = {"tp": "tensor", "cp": "context", "dp": "data", "ep": "expert", "repeated": "replicated"}
    return " ".join(f"{short} {layout[name]}" for short, name in named.items() if layout[name] > 1) or "one device"


def _blocks(stages: Sequence[PlanStage], limits: Limits) -> tuple[tuple[int, ...], ...]:
    """The blocks of each stage: one that two stages share belongs to that which runs more of its operators."""
    counts: dict[int, Counter[int]] = {}
    for place, stage in enumerate(stages):
        for operator in stage.operators:
            block = block_of(operator.module)
            if operator.phase == "forward" and block is not None:
                counts.setdefault(block, Counter())[place] += max(operator.flops, 1)
    cut = sorted(block for block, places in counts.items() if len(places) > 1)
    if not counts:
        return ()
    if cut:
        limits.note(
            f"A cut inside block{'s' * (len(cut) > 1)} {ranges(cut)}",
            "the block is whole, on the stage with most of its FLOPs",
        )
    runs: list[list[int]] = [[] for _ in stages]
    for block, places in sorted(counts.items()):
        runs[max(places, key=lambda place: (places[place], -place))].append(block)
    return tuple(map(tuple, runs))


def _recomputation(plan: PlanValue, limits: Limits) -> tuple[str, int]:
    """What most stages recompute, and how many blocks where only some are: the most of any stage."""
    names: Counter[str] = Counter()
    most = 0
    for stage in plan.stages:
        layers = set(stage.rematerialized)
        name = stage.recomputation or ("layers" if layers else "none")
        blocks = {
            block_of(o.module)
            for o in stage.operators
            if o.phase == "forward" and (name in ("half", "checkpoints") or o.layer in layers)
        } - {None}
        if name == "checkpoints":
            again = {block_of(o.module) for o in stage.operators if o.recomputed} - {None}
            if len(again) < len(blocks):
                what = f"Recomputation of {len(again)} of {len(blocks)} blocks of a stage, as the model checkpoints"
                limits.note(what, "every block is recomputed")
            name = "full"
        if name == "half":
            most = max(most, (len(blocks) + 1) // 2)
        elif name == "layers":
            most = max(most, len(blocks))
        names[name] += 1
    chosen = names.most_common(1)[0][0]
    if len(names) > 1:
        said = ", ".join(f"{count} × {name}" for name, count in names.items())
        limits.note(f"Stages that recompute different parts ({said})", f"every stage recomputes {chosen}")
    return chosen, most
