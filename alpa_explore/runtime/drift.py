"""What runs otherwise than predicted: the stages and links of a run, from what its ranks report while it goes on.

    compute of a stage     seconds of its tasks without collectives and waiting, on its slowest rank
    messages on a link     a transfer begins when both the sender has sent and the receiver has asked, and ends when the
                           message is there; predicted: latency of each busy period + bytes / bandwidth
    collectives on a link  on the rank that waits least for the others; predicted: `cost.collectives`, without what a
                           software profile adds

Each is compared per iteration. The clocks of hosts are compared once, when the ranks meet; both directions of a link
are added up, which cancels most of what they differ by since. From the ratios follows a cluster as it was measured, for
`questions.better_plan`: one figure for all devices and for each kind of link, as the planner has it.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from alpa_explore.cluster import Cluster, Device, Link
from alpa_explore.cluster.topology import Kind
from alpa_explore.cost.collectives import collective_seconds
from alpa_explore.errors import PlanFileError
from alpa_explore.plans.plan import Plan, load_plan
from alpa_explore.runtime import tuning
from alpa_explore.runtime.folder import read_facts, read_hosts, read_times
from alpa_explore.runtime.ranks.times import FILE
from alpa_explore.schedules.csv_file import read_csv
from alpa_explore.schedules.simulator.timeline import Timeline
from alpa_explore.sharding.reshard import StepKind

Nodes = tuple[int, ...]
"""Numbers of nodes, ascending; one for the link inside a node."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Part:
    """A part of an iteration."""

    predicted_seconds: float
    measured_seconds: float

    @property
    def ratio(self) -> float:
        """Measured over predicted."""
        return self.measured_seconds / self.predicted_seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class StageDrift(_Part):
    """The compute of a stage in one iteration."""

    stage: int

    @property
    def name(self) -> str:
        """'compute of stage 1'."""
        return f"compute of stage {self.stage}"


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkDrift(_Part):
    """What a link was used for in one iteration."""

    nodes: Nodes
    names: tuple[str, ...]
    """Of these nodes: the hosts' where they are known."""

    @property
    def name(self) -> str:
        """'link node 0 – node 1'."""
        return f"link {' – '.join(self.names)}" if len(self.nodes) > 1 else f"link inside {self.names[0]}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Drift:
    """The measured and predicted times of a run until now."""

    steps: int
    """The step of the last report."""
    iteration_seconds: float
    """Predicted, simulated."""
    stages: tuple[StageDrift, ...]
    links: tuple[LinkDrift, ...]
    cluster: Cluster
    """The plan's, with the measured figures."""

    @property
    def found(self) -> tuple[StageDrift | LinkDrift, ...]:
        """What differs enough, and takes long enough, for a word; the worst first."""
        whole = max([self.iteration_seconds, *(s.measured_seconds for s in self.stages)])
        parts: tuple[StageDrift | LinkDrift, ...] = (*self.stages, *self.links)
        enough = [
            part
            for part in parts
            if not 1 / tuning.DRIFT < part.ratio < tuning.DRIFT
            and max(part.predicted_seconds, part.measured_seconds) >= tuning.DRIFT_SHARE * whole
        ]
        return tuple(sorted(enough, key=lambda part: -abs(part.measured_seconds - part.predicted_seconds)))

    @property
    def lines(self) -> tuple[str, ...]:
        """A sentence for each: 'compute of stage 1 takes 1.4 times the predicted'."""
        return tuple(f"{part.name} takes {_times(part.ratio)} the predicted" for part in self.found)


def drift_of(folder: Path, plan: Plan | None = None) -> Drift | None:
    """The drift of the run in a folder, until now; None before all its ranks have reported.

    `plan` is that of the run, read from its folder if it is not given.
    """
    paths = {}
    try:
        run = read_facts(folder, "stages", "num_microbatches")
        for rank in run["ranks"]:
            paths[rank] = read_times(folder, FILE.format(rank), run["ranks"])
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise _unreadable(folder, error) from error
    plan = load_plan(folder / "plan.json") if plan is None else plan
    timeline = plan.timeline(read_csv(folder / "schedule.csv"))
    stages = []
    count = run["num_microbatches"] // timeline.schedule.copies
    computed = list(_compute_seconds(plan, timeline, count))
    if len(run["stages"]) < len(computed) or not all(run["stages"]):
        raise _unreadable(folder, f"run.json has ranks of {len(run['stages'])} stages, the plan {len(computed)} stages")
    if strange := set(run["ranks"]) - {device for stage in plan.stages for device in stage.devices}:
        raise _unreadable(folder, f"run.json has rank {min(strange)}, which is no device of the plan")
    for number, predicted in enumerate(computed):
        took = [
            sum(seconds[0] for kind, seconds in paths[rank]["tasks"].items() if _stage(kind) == number)
            for rank in run["stages"][number]
        ]
        if predicted > 0 and max(took) > 0:
            stages.append(StageDrift(stage=number, predicted_seconds=predicted, measured_seconds=max(took)))
    uses = _uses(plan.cluster, paths)
    names = _names(folder, plan.cluster, run["ranks"])
    return Drift(
        steps=min(report["step"] for report in paths.values()) + 1,
        iteration_seconds=timeline.makespan_seconds,
        stages=tuple(stages),
        links=tuple(
            LinkDrift(
                nodes=nodes,
                names=tuple(names[node] for node in nodes),
                predicted_seconds=sum(use.latency_seconds + use.wire_seconds for use in of_link),
                measured_seconds=sum(use.measured_seconds for use in of_link),
            )
            for nodes, of_link in sorted(uses.items())
        ),
        cluster=_measured_cluster(plan, stages, uses),
    )


def _unreadable(folder: Path, why: object) -> PlanFileError:
    return PlanFileError(
        "The times of this run cannot be read",
        found=f"{folder}: {why}",
        remedy="Name the folder of a run that `alpa-explore launch` made.",
    )


def _times(ratio: float) -> str:
    return f"{ratio:.1f} times" if ratio < 10 else f"{ratio:.0f} times"


def _stage(kind: str) -> int:
    """Of '12F': 12."""
    return int(kind[:-1])


def _compute_seconds(plan: Plan, timeline: Timeline, num_microbatches: int) -> Iterator[float]:
    """Predicted seconds of each stage in an iteration, without collectives."""
    times, copies = timeline.times, plan.costs.copies
    stages = plan.interleaved if len(plan.interleaved) == len(times) else plan.stages * timeline.schedule.copies
    known = len(stages) == len(times)
    for number, t in enumerate(times):
        parts = (t.forward_seconds, t.backward_input_seconds, t.backward_weight_seconds)
        computed = sum(part * (1 - moved) for part, moved in zip(parts, t.collective_fraction, strict=True))
        computed -= sum(t.send_wait_seconds)
        sums = sum(o.communication_seconds for o in stages[number].operators if o.phase == "update") if known else 0.0
        sums /= copies  # the operators of a plan for DualPipe count what both copies take
        yield num_microbatches * computed + max(t.update_seconds - sums, 0.0)


def _names(folder: Path, cluster: Cluster, ranks: Sequence[int]) -> dict[int, str]:
    """Node -> the name of its host where all its ranks, and no others, are on one; else 'node 0'."""
    try:
        hosts = read_hosts(folder)
    except (OSError, ValueError) as error:
        raise _unreadable(folder, error) from error
    on: dict[int, set[str]] = defaultdict(set)
    for rank in ranks:
        on[rank // cluster.devices_per_node].add(str(hosts.get(str(rank), "")).partition(" (")[0])
    apart = len({frozenset(names) for names in on.values()}) == len(on)
    plain = apart and all(len(names) == 1 and all(names) for names in on.values())
    return {node: next(iter(names)) if plain else f"node {node}" for node, names in on.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Use:
    """What a link was used for in an iteration: predicted parts and measured seconds."""

    latency_seconds: float
    wire_seconds: float
    measured_seconds: float


def _uses(cluster: Cluster, reports: Mapping[int, Any]) -> dict[Nodes, list[_Use]]:
    """The uses of each link, medians over the timed steps that all ranks have reported."""
    samples = {rank: {s["step"]: s for s in report["samples"]} for rank, report in reports.items()}
    steps = set.intersection(*(set(of_rank) for of_rank in samples.values()))
    found: dict[tuple[Nodes, str], list[_Use]] = defaultdict(list)
    for step in sorted(steps):
        of_step = {rank: of_rank[step] for rank, of_rank in samples.items()}
        for key, use in (*_messages(cluster, of_step), *_collectives(cluster, of_step)):
            found[key].append(use)
    uses: dict[Nodes, list[_Use]] = defaultdict(list)
    for (nodes, _), several in found.items():
        uses[nodes].append(replace(several[0], measured_seconds=median(use.measured_seconds for use in several)))
    return uses


def _link(cluster: Cluster, nodes: Nodes) -> Link:
    if len(nodes) > 1:
        return cluster.between_nodes
    return cluster.part_of(nodes[0] * cluster.devices_per_node).inside_node


def _messages(cluster: Cluster, reports: Mapping[int, Any]) -> Iterator[tuple[tuple[Nodes, str], _Use]]:
    """The transfers between the ranks of two nodes in one step. Both directions are one use: what the clocks of the
    hosts differ by cancels in their sum."""
    node = {rank: rank // cluster.devices_per_node for rank in reports}
    transfers: dict[tuple[int, ...], list[_Transfer]] = defaultdict(list)
    for rank, report in reports.items():
        offered = {source: {name: at for to, name, at in r["sent"] if to == rank} for source, r in reports.items()}
        for source, name, size, asked, done in report["received"]:
            # Inside a node every pair of devices has a link of its own.
            ends: tuple[int, ...] = (node[source], node[rank])
            if node[source] == node[rank]:
                ends = (*ends, source, rank)
            if name in offered[source]:
                transfers[ends].append((max(offered[source][name], asked), done, size))
    latency: dict[Nodes, float] = defaultdict(float)
    wire: dict[Nodes, float] = defaultdict(float)
    busy: dict[Nodes, float] = defaultdict(float)
    for ends, each in transfers.items():
        nodes = tuple(sorted(set(ends[:2])))
        periods, seconds = _busy(each)
        latency[nodes] += periods * _link(cluster, nodes).latency_seconds
        wire[nodes] += sum(size for _, _, size in each) / _link(cluster, nodes).bandwidth
        busy[nodes] += seconds
    for nodes, seconds in busy.items():
        if seconds > 0:  # else what the clocks differ by hides it
            use = _Use(latency_seconds=latency[nodes], wire_seconds=wire[nodes], measured_seconds=seconds)
            yield (nodes, "messages"), use


_Transfer = tuple[float, float, int]
"""(begin, end, bytes). The begin is by the sender's clock where the receiver asked first, the end by the receiver's."""


def _busy(transfers: Sequence[_Transfer]) -> tuple[int, float]:
    """(periods in which something was under way on a link in one direction, their seconds).

    Transfers that overlap share the link. The seconds are negative where the sender's clock is far ahead.
    """
    count, seconds, until = 0, 0.0, -np.inf
    for begin, end, _ in sorted(transfers):
        count += begin >= until
        if end > until:
            seconds += end - max(begin, until)
            until = end
    return count, seconds


def _collectives(cluster: Cluster, reports: Mapping[int, Any]) -> Iterator[tuple[tuple[Nodes, str], _Use]]:
    """The collectives of one step, by group, kind and size; groups side by side share the link between nodes."""
    per_node = cluster.devices_per_node
    least: dict[tuple[tuple[int, ...], str, int], tuple[int, float]] = {}
    for report in reports.values():
        for ranks, kind, size, count, seconds in report["collectives"]:
            key = (tuple(ranks), str(kind), int(size))
            least[key] = min(least.get(key, (count, np.inf)), (count, seconds), key=lambda pair: pair[1])
    for (ranks, kind, size), (count, seconds) in sorted(least.items()):
        nodes = tuple(sorted({rank // per_node for rank in ranks}))
        link = _link(cluster, nodes)
        sharing = min(abs(ranks[1] - ranks[0]), per_node) if len(nodes) > 1 else 1
        step = StepKind(kind)
        latency = collective_seconds(step, 0.0, len(ranks), 1.0, link.latency_seconds)
        wire = collective_seconds(step, size, len(ranks), link.bandwidth / sharing, 0.0)
        yield (
            (nodes, f"{kind} {ranks} {size}"),
            _Use(latency_seconds=count * latency, wire_seconds=count * wire, measured_seconds=seconds),
        )


def _measured_cluster(plan: Plan, stages: Sequence[StageDrift], uses: Mapping[Nodes, list[_Use]]) -> Cluster:
    """The figures of the cluster as measured, for each kind of nodes; those that nothing was measured of stay."""
    cluster, measured = plan.cluster, []
    # A collective among more than two nodes says nothing about two of them: it is the network's.
    between = [_slower(cluster.between_nodes, used) for nodes, used in uses.items() if len(nodes) > 1]
    for number, kind in enumerate(cluster.kinds):
        own = [s for s in stages if not cluster.others or cluster.kind_of(plan.stages[s.stage].devices[0]) == number]
        predicted, took = sum(s.predicted_seconds for s in own), sum(s.measured_seconds for s in own)
        inside = [
            _slower(kind.inside_node, used)
            for nodes, used in uses.items()
            if len(nodes) == 1 and cluster.kind_of(nodes[0] * cluster.devices_per_node) == number
        ]
        measured.append(
            Kind(
                nodes=kind.nodes,
                device=_paced(kind.device, took / predicted) if predicted and took else kind.device,
                inside_node=min(inside, key=lambda link: link.bandwidth, default=kind.inside_node),
            )
        )
    first, *others = measured
    return replace(
        cluster,
        device=first.device,
        between_nodes=min(between, key=lambda link: link.bandwidth, default=cluster.between_nodes),
        inside_node=first.inside_node,
        others=tuple(others),
    )


def _paced(device: Device, ratio: float) -> Device:
    """The device with every kernel `ratio` times as long."""
    return replace(
        device,
        peak_flops={dtype: rate / ratio for dtype, rate in device.peak_flops.items()},
        memory_bandwidth=device.memory_bandwidth / ratio,
        launch_seconds=device.launch_seconds * ratio,
        source=f"{device.source}; as a run measured it, {_times(ratio)} the seconds",
    )


def _slower(link: Link, uses: Sequence[_Use]) -> Link:
    """The link whose latency and bandwidth fit what was measured.

    Least squares of the relative errors, each weighted by its seconds; uses of one size cannot tell latency from
    bandwidth, so both are drawn a little to the ratio of all seconds. Where all takes longer than predicted, neither
    becomes better than it was planned.
    """
    took = np.array([use.measured_seconds for use in uses])
    parts = np.array([(use.latency_seconds, use.wire_seconds) for use in uses])
    if not took.sum() or not parts.sum():
        return link
    ratio = float(took.sum() / parts.sum())
    weights = np.sqrt(took / took.sum()) / np.maximum(took, 1e-9)
    scaled = parts * weights[:, None]
    pull = np.diag(tuning.DRIFT_PULL * np.sqrt((scaled**2).sum(axis=0)))
    rows, targets = np.vstack([scaled, pull]), np.concatenate([took * weights, pull @ np.array([ratio, ratio])])
    factors, least = np.linalg.lstsq(rows, targets, rcond=None)[0], min(ratio, 1.0)
    if (factors < least).any():
        kept = int(factors.argmin())
        factors[kept], other = least, rows[:, 1 - kept]
        factors[1 - kept] = max(other @ (targets - least * rows[:, kept]) / max(other @ other, 1e-300), least)
    slower, narrower = factors.tolist()
    return replace(
        link,
        latency_seconds=link.latency_seconds * slower,
        bandwidth=link.bandwidth / narrower,
        reduction_bandwidth=link.reduction_bandwidth / narrower,
        source=f"{link.source}; as a run measured it, {_times(ratio)} the seconds",
    )
