"""`plan --baseline KIND DEGREE=N …`: a plan by hand in place of the planner's, to run and to verify; `--from-layout
DEGREE=N …`: a plan that is never slower than a uniform layout, or than the best of them."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from alpa_explore import units
from alpa_explore.cli.progress_line import ProgressLine
from alpa_explore.errors import CancelledError, InfeasiblePlanError, OptionError
from alpa_explore.inter_op.options import PipelineOptions

if TYPE_CHECKING:
    from alpa_explore.planner.request import PlanRequest
    from alpa_explore.planner.resources import Running
    from alpa_explore.plans.plan import Plan


ByHand: TypeAlias = Callable[["PlanRequest", "Running"], "Plan"]
"""(request, where it runs) -> the plan of a baseline."""


def chosen_baseline(
    options: argparse.Namespace, pipeline: PipelineOptions, spec_constraints: Mapping[str, Any]
) -> ByHand | None:
    """What makes the plan that --baseline names; None without it.

    OptionError for an unknown baseline or degree, and where options are given that only the planner follows.
    """
    if options.baseline is None:
        return None
    kind, *words = options.baseline
    made = made_by(kind, words, pipeline)
    planned = {
        "a pipeline option": pipeline != PipelineOptions(paper=pipeline.paper),
        "--pin or --forbid": any(spec_constraints.values()),
        "--solver": options.solver != "auto",
        "--zigzag": options.zigzag is not None,
        "--remat auto": options.remat == "auto",
        "-B auto": options.num_microbatches == "auto",
    }
    if given := [name for name, is_given in planned.items() if is_given]:
        raise OptionError(
            "A baseline is not planned, so options of the planner have no effect on it",
            found=f"{given[0]} with --baseline {kind}",
            remedy="Leave one of them out.",
        )
    return made


def made_by(kind: str, words: Sequence[str], pipeline: PipelineOptions) -> ByHand:
    """What makes the plan of a baseline with the degrees in `words`. Errors as those of `chosen_baseline`."""
    from alpa_explore.baselines.kinds import EXCHANGES, Degrees, resolve

    names, degrees, exchange = tuple(Degrees.__dataclass_fields__), dict[str, int](), None
    resolve(kind, Degrees())
    for word in words:
        name, _, value = word.partition("=")
        if name == "exchange":
            exchange = value
        elif name in names and value.isdecimal():
            degrees[name] = int(value)
        else:
            raise OptionError(
                "A degree of a baseline is written NAME=N",
                found=repr(word),
                remedy=f"The names are {', '.join(names)}; and exchange={'|'.join(EXCHANGES)}. MODEL comes before it.",
            )
    resolve(kind, Degrees(**degrees), exchange)
    return partial(_by_hand, kind=kind, exchange=exchange, degrees=degrees, paper=pipeline.paper)


def _by_hand(
    request: PlanRequest,
    running: Running,
    *,
    kind: str,
    exchange: str | None,
    degrees: Mapping[str, Any],
    paper: bool | None,
) -> Plan:
    from alpa_explore.baselines.baseline import baseline
    from alpa_explore.planner.plan import captured

    with running.resources() as resources:
        graph = captured(request, resources)
    return baseline(
        graph,
        request.cluster,
        kind,
        num_microbatches=request.count,
        num_layers=request.num_layers,
        delta=request.delta,
        exchange=exchange,
        rematerialization=request.rematerialization,
        paper=paper,
        cancel=running.cancel,
        **degrees,
    )


_BEST = "best"
"""In place of degrees: the fastest of all layouts."""


def check_from_layout(
    options: argparse.Namespace, pipeline: PipelineOptions, spec_constraints: Mapping[str, Any]
) -> None:
    """OptionError for degrees that are none, and with options that no layout follows."""
    if options.from_layout is None:
        return
    if options.baseline is not None:
        raise OptionError(
            "A baseline is not planned, so it starts from no layout",
            found=f"--from-layout with --baseline {options.baseline[0]}",
            remedy="Leave one of them out.",
        )
    followed = pipeline == PipelineOptions(paper=pipeline.paper) and not any(spec_constraints.values())
    if not followed or options.zigzag is not None:
        raise OptionError(
            "A uniform layout follows no options of the pipeline, so a plan with them cannot start from one",
            found="--from-layout with an option of the pipeline, --pin, --forbid or --zigzag",
            remedy="Leave one of them out.",
        )
    if options.from_layout != [_BEST]:
        made_by("megatron", options.from_layout, pipeline)


def with_layout(
    found: Plan | None, options: argparse.Namespace, request: PlanRequest, running: Running, line: ProgressLine
) -> Plan | None:
    """The faster of a plan and of that of the layout; `found` without the option, None where neither fits.
    CancelledError with `found`."""
    if options.from_layout is None:
        return found
    try:
        if options.from_layout == [_BEST]:
            made, words = _best(request, running)
        else:
            made, words = _given(found, options, request, running)
    except CancelledError as error:
        error.known = found
        raise
    if made is None:
        line.say(words)
        return found
    seconds = made.predicted.iteration_seconds
    if found is not None and found.predicted.iteration_seconds <= seconds:
        line.say(f"{words} takes {units.seconds(seconds)}, no less than the plan")
        return found
    beside = "no plan fits" if found is None else f"the plan {units.seconds(found.predicted.iteration_seconds)}"
    line.say(f"{words} takes {units.seconds(seconds)}, {beside}: the layout is kept")
    return made


def faster_sentence(plan: Plan, options: argparse.Namespace, model: str) -> str:
    """Which uniform layout is faster than a plan, as far as that is known; '' where none is, and where the plan of the
    best one was made and is no faster."""
    if plan.options.baseline or options.from_layout == [_BEST]:
        return ""
    from alpa_explore.uniform_layouts.beside_plan import faster_layout

    return faster_layout(plan, model, precision=options.precision)


def _best(request: PlanRequest, running: Running) -> tuple[Plan | None, str]:
    """The plan of the fastest layout, and what it is called; or why there is none."""
    from alpa_explore.uniform_layouts.beside_plan import best_layout, plan_of_layout

    best = best_layout(request, running)
    if best is None:
        return None, "no uniform layout fits with these microbatches and this recomputation"
    words = f"the layout {best.words}"
    try:
        return plan_of_layout(best, request, running.cancel), words
    except InfeasiblePlanError as error:
        return None, f"{words}: {error}"


def _given(
    found: Plan | None, options: argparse.Namespace, request: PlanRequest, running: Running
) -> tuple[Plan | None, str]:
    """The plan of the layout with the given degrees, and what it is called; or why there is none."""
    by_hand = made_by("megatron", options.from_layout, PipelineOptions(paper=options.paper))
    words = f"the layout {' '.join(options.from_layout)}"
    count = request.num_microbatches if found is None else found.options.num_microbatches
    if count == "auto":
        return None, f"{words} has no number of microbatches"
    named = None if request.rematerialization == "auto" else request.rematerialization
    try:
        return by_hand(replace(request, num_microbatches=count, rematerialization=named), running), words
    except InfeasiblePlanError as error:
        return None, f"{words}: {error}"
