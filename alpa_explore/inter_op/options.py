"""What a user may ask of the pipeline beyond the paper; every default is the paper's.

    cuts, num_stages, stage_submeshes   which stages there may be
    schedule, stages_per_submesh        how many microbatches a stage holds, how large the bubble is (`schedule_terms`)
    communication                       what a stage receives from others is added to its latency
    submesh_space                       which submeshes a stage may have
    imbalance_tolerance                 how far a stage's share of the FLOPs may be from its share of the devices
    tied_weights                        the sum of a weight's gradients over the stages that use it is added

`stage_table` turns each of them into entries of the latency table, so that the DP itself stays the paper's.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from alpa_explore.cluster import SUBMESH_SPACES, Cluster, Submesh, submeshes
from alpa_explore.errors import OptionError
from alpa_explore.inter_op.schedule_terms import SCHEDULES, ScheduleTerms

CONSTRAINTS = frozenset({"cuts", "num_stages", "stage_submeshes", "imbalance_tolerance"})
"""Fields that rule partitions out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineOptions:
    """See the module's text."""

    cuts: tuple[int, ...] = ()
    """Layers with which a stage must begin (1 to L − 1)."""
    num_stages: int | None = None
    stage_submeshes: tuple[tuple[int, int, int], ...] = ()
    """(stage, nodes, devices per node): stages count from 0, or from −1 backwards from the last."""
    communication: bool = False
    schedule: str = "1f1b"
    stages_per_submesh: int = 2
    """v, of the schedule interleaved-1f1b alone."""
    submesh_space: str = "all"
    imbalance_tolerance: float | None = None
    """A stage with a share x of the devices does between x / (1 + tolerance) and x · (1 + tolerance) of the FLOPs."""
    tied_weights: bool = False

    @property
    def constrained(self) -> bool:
        """True when some partition is ruled out that the paper would take."""
        return not CONSTRAINTS.isdisjoint(phrases(self))

    def terms(self, num_microbatches: int, *, recomputes: bool = False) -> ScheduleTerms:
        """What the schedule means at this B; `recomputes` where the backward pass runs forward operators again."""
        return ScheduleTerms(
            schedule=self.schedule, num_microbatches=num_microbatches, stages_per_submesh=self.stages_per_submesh,
            recomputes=recomputes,
        )  # fmt: skip


def phrases(options: PipelineOptions) -> dict[str, str]:
    """Field -> what it asks for, in words; only those that are not the paper's."""
    cuts, tolerance = ", ".join(map(str, options.cuts)), options.imbalance_tolerance
    interleaved = options.schedule == "interleaved-1f1b"
    words = {
        "cuts": f"a stage begins with layer {cuts}" if cuts else "",
        "num_stages": f"{options.num_stages} stages" if options.num_stages else "",
        "stage_submeshes": "; ".join(f"stage {s} on {n}x{m}" for s, n, m in options.stage_submeshes),
        "imbalance_tolerance": "" if tolerance is None else f"an imbalance of at most {tolerance:g}",
        "schedule": "" if options.schedule == "1f1b" else f"schedule {options.schedule}",
        "stages_per_submesh": f"{options.stages_per_submesh} stages a submesh" if interleaved else "",
        "communication": "communication between stages counted" if options.communication else "",
        "tied_weights": "sums of tied weights counted" if options.tied_weights else "",
        "submesh_space": "" if options.submesh_space == "all" else f"submeshes {options.submesh_space}",
    }
    return {field: phrase for field, phrase in words.items() if phrase}


def check_options(
    options: PipelineOptions, cluster: Cluster, num_layers: int | None = None, num_microbatches: int | None = None
) -> None:
    """OptionError for what no pipeline could satisfy; what depends on `num_layers` or B only where they are given."""
    if options.schedule not in SCHEDULES:
        raise OptionError(
            "There is no such schedule", found=f"'{options.schedule}'", remedy=f"Use one of: {', '.join(SCHEDULES)}."
        )
    if options.stages_per_submesh < 2:
        raise OptionError(
            "An interleaved schedule has two stages on a submesh or more", found=f"{options.stages_per_submesh}",
            remedy="Give 2 or more, or choose the schedule 1f1b.",
        )  # fmt: skip
    if options.submesh_space not in SUBMESH_SPACES:
        raise OptionError(
            "There is no such space of submeshes", found=f"'{options.submesh_space}'",
            remedy=f"Use one of: {', '.join(SUBMESH_SPACES)}.",
        )  # fmt: skip
    tolerance = options.imbalance_tolerance
    if tolerance is not None and not 0 <= tolerance < math.inf:
        raise OptionError(
            "The imbalance tolerance is a share of 0 or more", found=f"{tolerance}",
            remedy="Give 0.5 for half as much again, or leave it out.",
        )  # fmt: skip
    if options.num_stages is not None and not 1 <= options.num_stages <= (num_layers or math.inf):
        raise OptionError(
            "A stage has a layer at least", found=f"num_stages={options.num_stages}",
            remedy=f"Give 1 to {num_layers or 'the number of layers'}.",
        )  # fmt: skip
    for cut in options.cuts:
        if cut < 1 or (num_layers is not None and cut >= num_layers):
            raise OptionError(
                "A cut names the layer with which a stage begins", found=f"layer {cut}",
                remedy=f"Give 1 to {'the last layer' if num_layers is None else num_layers - 1}.",
            )  # fmt: skip
    if options.num_stages is not None and len(set(options.cuts)) >= options.num_stages:
        raise OptionError(
            "So many cuts make more stages than are asked for",
            found=f"{len(set(options.cuts))} cuts and num_stages={options.num_stages}",
            remedy="Each cut begins another stage: leave out a cut, or ask for more stages.",
        )  # fmt: skip
    if options.num_stages is not None and num_microbatches is not None:
        options.terms(num_microbatches).check_depth(options.num_stages)
    _check_submeshes(options, cluster, num_layers)


def _check_submeshes(options: PipelineOptions, cluster: Cluster, num_layers: int | None) -> None:
    pieces = submeshes(cluster, options.submesh_space)
    seen: dict[int, int] = {}
    for stage, nodes, devices in options.stage_submeshes:
        if Submesh(nodes, devices) not in pieces:
            raise OptionError(
                "No stage can have this submesh", found=f"{nodes}x{devices} on {cluster}",
                remedy=f"Use one of: {', '.join(f'{p.nodes}x{p.devices_per_node}' for p in pieces)}.",
            )  # fmt: skip
        most = num_layers if options.num_stages is None else options.num_stages
        if most is not None and not -most <= stage < most:
            raise OptionError(
                "There cannot be such a stage", found=f"stage {stage} of at most {most}",
                remedy=f"Give 0 to {most - 1}, or −1 to −{most} from the last stage backwards.",
            )  # fmt: skip
        if stage > 0 and options.num_stages is None:
            raise OptionError(
                "Which stage this is depends on how many there are", found=f"stage {stage} without num_stages",
                remedy="Give num_stages too, or count from the last stage: −1 is the last, −2 the one before it.",
            )  # fmt: skip
        place = stage if options.num_stages is None or stage < 0 else stage - options.num_stages
        if seen.setdefault(place, nodes * devices) != nodes * devices:
            raise OptionError(
                "A stage has one submesh", found=f"two for stage {stage}", remedy="Leave one of them out."
            )
