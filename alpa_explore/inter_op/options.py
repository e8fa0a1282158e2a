"""The pipeline options. With `paper` they give the planner of the paper; else sends and tied weights count, too.

    paper                               T is Eq. 2 of the paper, without sends and sums of tied weights

    cuts, num_stages, stage_submeshes   which stages there may be
    schedule, stages_per_submesh        how many microbatches a stage holds, how large the bubble is (`schedule_terms`)
    communication                       the objective counts the time to receive inputs from other stages
    submesh_space                       which submeshes a stage may have
    imbalance_tolerance                 how far a stage's share of the FLOPs may be from its share of the devices
    tied_weights                        count the time to sum a tied weight's gradients over the stages that use it

`stage_table` writes each of them into the latency table, so that the DP itself stays the paper's.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from numbers import Real
from typing import Any

from alpa_explore.cluster import SUBMESH_SPACES, Cluster, submeshes
from alpa_explore.errors import OptionError
from alpa_explore.inter_op.schedule_terms import SCHEDULES, ScheduleTerms
from alpa_explore.schedules.catalog import DUAL_PIPE, INTERLEAVED

IDEAL = "ideal, as in the paper"
"""Stands beside every T that is Eq. 2 without sends."""
AUTO = "auto"
"""In place of a schedule: the planner compares those that the software runs (`compared`). Its terms are those
of 1F1B, which exists for every pipeline."""
CONSTRAINTS = frozenset({"cuts", "num_stages", "stage_submeshes", "imbalance_tolerance"})
"""Fields that exclude partitions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineOptions:
    """See the module's docstring."""

    cuts: tuple[int, ...] = ()
    """Layers at which a stage must begin (1 to L − 1)."""
    num_stages: int | None = None
    stage_submeshes: tuple[tuple[int, int, int], ...] = ()
    """(stage, nodes, devices per node). Stages are numbered from 0, or backwards from −1, which is the last."""
    paper: bool | None = None
    """Whether T is Eq. 2, ideal, as in the paper, and not what an iteration takes (`plans.iteration_time`). None turns
    True for the paper's own models on V100 with idealised software; elsewhere it means False."""
    communication: bool | None = None
    """Whether the objective counts sends between stages. None becomes True, in the paper's mode False."""
    schedule: str = AUTO
    """A plan has the one that was chosen."""
    stages_per_submesh: int = 2
    """v; read by the schedule interleaved-1f1b only."""
    submesh_space: str = "all"
    imbalance_tolerance: float | None = None
    """A stage with a share x of the devices does between x / (1 + tolerance) and x · (1 + tolerance) of the FLOPs."""
    tied_weights: bool | None = None
    """As `communication`, for the gradient sums of weights that several stages read."""

    def __post_init__(self) -> None:
        """Lists become tuples and numpy's numbers Python's; OptionError for a value that a field cannot take."""
        for field, (convert, form) in _FORMS.items():
            given = getattr(self, field)
            try:
                object.__setattr__(self, field, convert(given))
            except (TypeError, ValueError) as error:
                raise OptionError(
                    f"The pipeline option {field} must be {form}",
                    found=f"{given!r}"[:200],
                    remedy=f"Give {form}, or leave it out.",
                ) from error
        for field in ("communication", "tied_weights"):
            if getattr(self, field) is None:
                object.__setattr__(self, field, not self.paper)

    def for_papers_setting(self) -> PipelineOptions:
        """These options for a model, a cluster and software of the paper: in its mode, unless they say otherwise."""
        return self if self.paper is not None else replace(self, paper=True, communication=None, tied_weights=None)

    @property
    def mode(self) -> str:
        """What stands beside a T that is Eq. 2: 'ideal, as in the paper', unless sends are counted; else ''."""
        if not self.paper:
            return ""
        return "Eq. 2 of the paper, sends counted" if self.communication else IDEAL

    @property
    def constrained(self) -> bool:
        """Whether a partition that the paper's planner may choose is excluded."""
        return not CONSTRAINTS.isdisjoint(phrases(self))

    def terms(self, num_microbatches: int, *, recomputes: bool = False) -> ScheduleTerms:
        """The schedule's bubble and memory at this B; `recomputes` where forward operators are rematerialised."""
        return ScheduleTerms(
            schedule=SCHEDULES[0] if self.schedule == AUTO else self.schedule,
            num_microbatches=num_microbatches,
            stages_per_submesh=self.stages_per_submesh,
            recomputes=recomputes,
        )


def _whole(given: Any) -> int:
    if isinstance(given, bool):
        raise TypeError("a Boolean is not a number")
    return operator.index(given)


def _switch(given: Any) -> bool:
    if given not in (True, False):
        raise TypeError("not a Boolean")
    return bool(given)


def _name(given: Any) -> str:
    if not isinstance(given, str):
        raise TypeError("not a string")
    return given.strip().lower()


def _share(given: Any) -> float:
    if isinstance(given, bool) or not isinstance(given, Real):
        raise TypeError("not a number")
    return float(given)


_FORMS: dict[str, tuple[Callable[[Any], Any], str]] = {
    "cuts": (lambda given: tuple(map(_whole, given)), "a tuple of layers, as in (4, 8)"),
    "num_stages": (lambda given: None if given is None else _whole(given), "a whole number"),
    "stage_submeshes": (
        lambda given: tuple((_whole(s), _whole(n), _whole(m)) for s, n, m in given),
        "a tuple of (stage, nodes, devices per node), as in ((0, 1, 4), (-1, 1, 2))",
    ),
    "paper": (lambda given: None if given is None else _switch(given), "True or False"),
    "communication": (lambda given: None if given is None else _switch(given), "True or False"),
    "schedule": (_name, f"one of {', '.join((AUTO, *SCHEDULES))}"),
    "stages_per_submesh": (_whole, "a whole number"),
    "submesh_space": (_name, f"one of {', '.join(SUBMESH_SPACES)}"),
    "imbalance_tolerance": (lambda given: None if given is None else _share(given), "a number, as 0.5"),
    "tied_weights": (lambda given: None if given is None else _switch(given), "True or False"),
}
"""Field -> the function that converts a given value (TypeError, ValueError where it cannot), and its form in words."""


def phrases(options: PipelineOptions) -> dict[str, str]:
    """Field -> its setting in words, for the screen; only fields that differ from their defaults."""
    cuts, tolerance = ", ".join(map(str, options.cuts)), options.imbalance_tolerance
    interleaved = options.schedule == INTERLEAVED
    words = {
        "cuts": f"stages begin at layer {cuts}" if cuts else "",
        "num_stages": f"{options.num_stages} stages" if options.num_stages else "",
        "stage_submeshes": "; ".join(f"stage {s} on {n}×{m}" for s, n, m in options.stage_submeshes),
        "imbalance_tolerance": "" if tolerance is None else f"FLOP imbalance of at most {tolerance:g}",
        "schedule": "" if options.schedule in (AUTO, SCHEDULES[0]) else f"schedule {options.schedule}",
        "stages_per_submesh": f"{options.stages_per_submesh} stages per submesh" if interleaved else "",
        "paper": IDEAL if options.paper else "",
        "communication": _counted("sends between stages", options, options.communication),
        "tied_weights": _counted("gradient sums of tied weights", options, options.tied_weights),
        "submesh_space": "" if options.submesh_space == "all" else f"submeshes {options.submesh_space}",
    }
    return {field: phrase for field, phrase in words.items() if phrase}


def _counted(what: str, options: PipelineOptions, counted: bool | None) -> str:
    """In words, where it is not as the mode has it."""
    if options.paper:
        return f"{what} counted" if counted else ""
    return "" if counted else f"{what} not in the objective"


def check_options(
    options: PipelineOptions, cluster: Cluster, num_layers: int | None = None, num_microbatches: int | None = None
) -> None:
    """OptionError for options that no pipeline can satisfy.

    What depends on `num_layers` or on B is only checked where they are given.
    """
    _check_schedule(options)
    if options.terms(1).turns > 1 or options.schedule == DUAL_PIPE:
        check_like_nodes(
            cluster,
            f"The schedule {options.schedule} needs like stages",
            "Use 1f1b, gpipe or zb-h1, or plan on nodes of one kind.",
        )
    _check_stages(options, num_layers)
    if options.schedule == DUAL_PIPE:
        _check_dual_pipe(options, cluster, num_layers, num_microbatches)
    elif options.num_stages is not None and num_microbatches is not None:
        options.terms(num_microbatches).check_depth(options.num_stages)
    _check_submeshes(options, cluster, num_layers)


def check_like_nodes(cluster: Cluster, reason: str, remedy: str) -> None:
    """OptionError, which begins with `reason`, for a cluster of unlike nodes."""
    if cluster.others:
        raise OptionError(f"{reason}, and the nodes of this cluster are unlike", found=str(cluster), remedy=remedy)


def _check_schedule(options: PipelineOptions) -> None:
    if options.schedule not in (AUTO, *SCHEDULES):
        raise OptionError(
            "There is no such schedule",
            found=f"'{options.schedule}'",
            remedy=f"Use one of: {', '.join((AUTO, *SCHEDULES))}.",
        )
    if options.stages_per_submesh < 2:
        raise OptionError(
            "An interleaved schedule needs at least two stages on a submesh",
            found=f"{options.stages_per_submesh}",
            remedy="Give 2 or more, or choose the schedule 1f1b.",
        )
    if options.submesh_space not in SUBMESH_SPACES:
        raise OptionError(
            "Unknown space of submeshes",
            found=f"'{options.submesh_space}'",
            remedy=f"Use one of: {', '.join(SUBMESH_SPACES)}.",
        )
    tolerance = options.imbalance_tolerance
    if tolerance is not None and not 0 <= tolerance < math.inf:
        raise OptionError(
            "The imbalance tolerance must be a share of 0 or more",
            found=f"{tolerance}",
            remedy="Give 0.5 to allow half as much again, or leave it out.",
        )


def _check_dual_pipe(options: PipelineOptions, cluster: Cluster, num_layers: int | None, b: int | None) -> None:
    """An even number of equal submeshes, and an even B of at least two microbatches for each."""
    sizes = {submesh.devices for submesh in submeshes(cluster, options.submesh_space)}
    depths = [p for p in range(2, cluster.devices + 1, 2) if cluster.devices % p == 0 and cluster.devices // p in sizes]
    least_layers = min(depths, default=0)
    depths = [p for p in depths if num_layers is None or p <= num_layers]
    if not depths:
        more = f"with {least_layers} layers or more" if least_layers else "on an even number of devices"
        raise OptionError(
            "DualPipe needs an even number of equal submeshes, with a layer or more on each",
            found=f"{cluster.devices} devices" + ("" if num_layers is None else f" and {num_layers} layers"),
            remedy=f"Plan for the schedule dualpipe-v, or {more}.",
        )
    if options.num_stages is not None and options.num_stages not in depths:
        raise OptionError(
            "DualPipe needs an even number of equal submeshes",
            found=f"{options.num_stages} stages on {cluster.devices} devices",
            remedy=f"Ask for {' or '.join(map(str, depths))} stages, or for the schedule dualpipe-v.",
        )
    least = 2 * (options.num_stages or depths[0])
    if b is not None and (b % 2 or b < least):
        nearest = f"{least} or more" if b < least else f"{b - 1} or {b + 1}"
        raise OptionError(
            "DualPipe needs an even number of microbatches, at least two for each submesh",
            found=f"B = {b} for {least // 2} submeshes",
            remedy=f"Ask for B = {nearest}, or for the schedule dualpipe-v.",
        )


def _check_stages(options: PipelineOptions, num_layers: int | None) -> None:
    """Cuts and the number of stages against the number of layers, and against each other."""
    if options.num_stages is not None and not 1 <= options.num_stages <= (num_layers or math.inf):
        raise OptionError(
            "A stage needs at least one layer",
            found=f"num_stages={options.num_stages}",
            remedy=f"Give 1 to {num_layers or 'the number of layers'}.",
        )
    for cut in options.cuts:
        if cut < 1 or (num_layers is not None and cut >= num_layers):
            raise OptionError(
                "A cut must name a layer at which a stage can begin",
                found=f"layer {cut}",
                remedy=f"Give 1 to {'the last layer' if num_layers is None else num_layers - 1}.",
            )
    if options.num_stages is not None and len(set(options.cuts)) >= options.num_stages:
        raise OptionError(
            "The cuts make more stages than num_stages allows",
            found=f"{len(set(options.cuts))} cuts and num_stages={options.num_stages}",
            remedy="Each cut begins another stage: leave out a cut, or ask for more stages.",
        )


def _check_submeshes(options: PipelineOptions, cluster: Cluster, num_layers: int | None) -> None:
    shapes = submeshes(cluster, options.submesh_space)
    devices_at: dict[int, int] = {}
    for stage, nodes, devices in options.stage_submeshes:
        if (nodes, devices) not in {(s.nodes, s.devices_per_node) for s in shapes}:
            raise OptionError(
                "No stage can have this submesh",
                found=f"{nodes}x{devices} on {cluster}",
                remedy=f"Use one of: {', '.join(dict.fromkeys(f'{s.nodes}x{s.devices_per_node}' for s in shapes))}.",
            )
        most = num_layers if options.num_stages is None else options.num_stages
        if most is not None and not -most <= stage < most:
            raise OptionError(
                "There cannot be such a stage",
                found=f"stage {stage} of at most {most}",
                remedy=f"Give 0 to {most - 1}, or −1 to −{most} from the last stage backwards.",
            )
        if stage > 0 and options.num_stages is None:
            raise OptionError(
                "Which stage this is depends on the number of stages",
                found=f"stage {stage} without num_stages",
                remedy="Give num_stages too, or count from the last stage: −1 is the last, −2 the one before it.",
            )
        place = stage if options.num_stages is None or stage < 0 else stage - options.num_stages
        if devices_at.setdefault(place, nodes * devices) != nodes * devices:
            raise OptionError(
                "A stage can have only one submesh", found=f"two for stage {stage}", remedy="Leave one of them out."
            )


MOST_TURNS = 8
"""Stages on a submesh that are compared: with more, each is short, and its sends are many. As
`uniform_layouts.tuning.MOST_CHUNKS`."""


def compared(
    options: PipelineOptions, cluster: Cluster, num_layers: int, num_microbatches: int
) -> tuple[PipelineOptions, ...]:
    """The options with each schedule that is compared, 1F1B first; `options` alone where they name a schedule.

    The others are those that the software runs. Interleaved schedules are compared for every number v of stages on a
    submesh with which some pipeline of P submeshes divides the layers into P·v equal stages, up to `MOST_TURNS`.
    DualPipe, which runs two copies of the model, has other sharding problems than the rest, and is not among them. The
    paper's setting, and software whose schedules are not known, have 1F1B alone.
    """
    if options.schedule != AUTO:
        return (options,)
    first = replace(options, schedule=SCHEDULES[0])
    asked = [first]
    for name in cluster.software.schedules.split() if not options.paper else ():
        turns = _turns(options, cluster, num_layers, num_microbatches) if name == INTERLEAVED else (None,)
        for v in turns:
            named = replace(options, schedule=name, stages_per_submesh=v or first.stages_per_submesh)
            with suppress(OptionError):  # it does not exist for this pipeline
                check_options(named, cluster, num_layers, num_microbatches)
                if named.terms(1).copies == 1:
                    asked.append(named)
    return tuple(dict.fromkeys(asked))


def _turns(options: PipelineOptions, cluster: Cluster, layers: int, b: int) -> tuple[int, ...]:
    depths = (options.num_stages,) if options.num_stages else range(2, min(cluster.devices, layers // 2, b) + 1)
    divided = {layers // depth for depth in depths if depth > 1 and layers % depth == 0 and b % depth == 0}
    return tuple(v for v in range(2, MOST_TURNS + 1) if any(each % v == 0 for each in divided))
