"""On how many devices of this kind a model fits, where it does not fit on the given ones.

Clusters of two, four, … times the devices are looked at. A cluster is too small if no pipeline fits even with lower
bounds on the bytes of its stages. Otherwise stages are priced, those of the best pipeline by the bounds first, as for
another delta, until some pipeline fits: that is a plan, if not the best one.
"""

import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace

from alpa_explore.cluster import Cluster
from alpa_explore.cluster.topology import MOST_DEVICES
from alpa_explore.errors import InfeasiblePlanError
from alpa_explore.graph import TrainingGraph
from alpa_explore.intra_op.stage.recomputation import asked_for
from alpa_explore.planner import tuning
from alpa_explore.planner.plan import layers_of
from alpa_explore.planner.request import PlanRequest
from alpa_explore.search.bounds.least_bytes import least_weight_bytes
from alpa_explore.search.pipeline_query import PipelineQuery
from alpa_explore.search.profile_stages import a_pipeline_fits
from alpa_explore.search.stages.versions import layered_versions


@dataclass(frozen=True, slots=True, kw_only=True)
class FittingCluster:
    """The smallest cluster on which the model may fit."""

    cluster: Cluster
    found: bool
    """A plan that fits on it was found; False where that is not known."""
    least: bool
    """Every smaller cluster that was looked at is proven to be too small."""

    def __str__(self) -> str:
        """'Needs 16 × v100: 2 nodes of 8'."""
        cluster = self.cluster
        if cluster.others:
            return f"{'Fits on' if self.found else 'Needs at least'} {cluster.devices} devices of these kinds"
        nodes = "1 node" if cluster.nodes == 1 else f"{cluster.nodes} nodes"
        verb = ("Needs" if self.least else "Fits on") if self.found else "Needs at least"
        return f"{verb} {cluster.devices} × {cluster.device.name}: {nodes} of {cluster.devices_per_node}"


def fitting_cluster(
    graph: TrainingGraph, request: PlanRequest, *, cancel: threading.Event | None = None
) -> FittingCluster | None:
    """The first cluster larger than that of `request` on which `graph` fits with the same options; None where no
    cluster that can be planned for is known to fit. Stops soon after `cancel` is set, or tuning.FIT_SECONDS later."""
    weights, least = least_weight_bytes(graph, request.cluster.software), True
    stop = _Deadline(cancel, tuning.FIT_SECONDS)
    for cluster in larger_clusters(request.cluster):
        if weights > sum(kind.devices * kind.device.offered_bytes for kind in cluster.kinds):
            continue
        fit = fits(graph, replace(request, cluster=cluster), stop=stop)
        if fit:
            return FittingCluster(cluster=cluster, found=True, least=least)
        if stop.is_set():
            return FittingCluster(cluster=cluster, found=False, least=least) if least else None
        least = least and fit is False
    return None


def fits(graph: TrainingGraph, request: PlanRequest, *, stop: threading.Event | None = None) -> bool | None:
    """True where a plan of `graph` that fits was found, False where no plan fits, None where neither is known: `stop`
    was set, or a stage cannot be composed."""
    if request.whole_rematerialization is not None:
        graph = replace(graph, rematerialization=request.whole_rematerialization)
    request = replace(request, rematerialization=asked_for(request.rematerialization, graph))
    layering = layers_of(graph, request)
    query = PipelineQuery(cluster=request.cluster, options=request.pipeline, num_microbatches=request.count)
    flops = tuple(layer.flops for layer in layering.layers)
    answers = set()
    versions = layered_versions(
        graph,
        layering.layer_of_forward,
        request.rematerialization,
        request.spec_constraints,
        software=request.cluster.software,
    )
    for layered in reversed(versions):  # the last one recomputes most
        answer = a_pipeline_fits(layered, query, layer_flops=flops, cancel=stop)
        if answer:
            return True
        answers.add(answer)
    return False if answers == {False} else None


def with_fitting_cluster(
    error: InfeasiblePlanError, graph: TrainingGraph, request: PlanRequest, *, cancel: threading.Event | None = None
) -> InfeasiblePlanError:
    """`error`, whose remedy begins with the cluster on which the model fits, where memory is the reason and such a
    cluster is found."""
    if error.over_bytes is None or (fitting := fitting_cluster(graph, request, cancel=cancel)) is None:
        return error
    return InfeasiblePlanError(
        error.what,
        found=error.found,
        remedy=f"{fitting} ({fitting.cluster}). {error.remedy}",
        over_bytes=error.over_bytes,
    )


class _Deadline(threading.Event):
    """Set once so many seconds have passed, or `cancel` is set."""

    def __init__(self, cancel: threading.Event | None, seconds: float) -> None:
        super().__init__()
        self._cancel, self._end = cancel, time.monotonic() + seconds

    def is_set(self) -> bool:
        """Whether it is time to stop."""
        return time.monotonic() > self._end or (self._cancel is not None and self._cancel.is_set())


def larger_clusters(cluster: Cluster) -> Iterator[Cluster]:
    """Clusters of the same devices, each twice as large as the one before: a single node is enlarged to a usual one,
    then there are more nodes of this size."""
    nodes, per_node = cluster.nodes, cluster.devices_per_node
    while cluster.others and 2 * cluster.devices <= MOST_DEVICES and 2 * cluster.nodes <= tuning.MOST_NODES:
        doubled = tuple(replace(kind, nodes=2 * kind.nodes) for kind in cluster.others)
        cluster = replace(cluster, nodes=2 * cluster.nodes, others=doubled)
        yield cluster
    while not cluster.others:
        if nodes == 1 and 2 * per_node <= tuning.USUAL_NODE:
            per_node *= 2
        else:
            nodes *= 2
        if nodes > tuning.MOST_NODES or nodes * per_node > MOST_DEVICES:
            return
        yield cluster.resized(nodes, per_node)
