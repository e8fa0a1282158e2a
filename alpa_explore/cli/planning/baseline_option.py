"""`plan --baseline KIND DEGREE=N …`: a plan by hand in place of the planner's, to run and to verify."""

from __future__ import annotations

import argparse
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from alpa_explore.errors import OptionError
from alpa_explore.inter_op.options import PipelineOptions

if TYPE_CHECKING:
    from alpa_explore.planner.request import PlanRequest
    from alpa_explore.plans.plan import Plan

ByHand: TypeAlias = Callable[["PlanRequest", threading.Event | None], "Plan"]
"""(request, cancel) -> the plan of a baseline."""


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
    cancel: threading.Event | None,
    *,
    kind: str,
    exchange: str | None,
    degrees: Mapping[str, Any],
    paper: bool | None,
) -> Plan:
    from alpa_explore.baselines.baseline import baseline
    from alpa_explore.planner.microbatch_graph import microbatch_graph

    graph = microbatch_graph(
        request.model,
        request.count,
        rematerialization=request.whole_rematerialization,
        precision=request.precision,
        global_batch=request.global_batch,
    )
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
        cancel=cancel,
        **degrees,
    )
