"""The launch targets: this machine, a script or a manifest that the user starts, or the workers of a Dask cluster."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from alpa_explore.errors import OptionError, UnknownNameError, nearest_names
from alpa_explore.plans.plan import Plan
from alpa_explore.runtime.targets.dask_cluster import check_workers, hosts_left
from alpa_explore.runtime.targets.dask_workers import DaskRanks
from alpa_explore.runtime.targets.local import LocalRanks, check_devices
from alpa_explore.runtime.targets.network import parse_ports
from alpa_explore.runtime.targets.scripts import check_kubernetes, write_kubernetes, write_slurm, write_torchrun


class Ranks(Protocol):
    """The started ranks of a run, on any target."""

    def poll(self) -> dict[str, Any] | None:
        """None while the run goes on; then its state (done, failed, stopped, written) and, of a failure, rank, what,
        found, remedy, may_pass and, of workers, those that were lost."""

    def stop(self) -> None:
        """End the ranks; returns when they are gone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Left:
    """The devices on which a run can go on."""

    nodes: int
    devices_per_node: int
    hosts: str
    """In words; empty where they are the same ones as before."""
    start: Callable[[Path, Plan, str], Ranks]


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A way of starting ranks."""

    check: Callable[[Plan, str], object]
    """(plan, device): raises OptionError where the plan cannot run there. Called before anything is written."""
    start: Callable[[Path, Plan, str], Ranks]
    """(folder of the run, plan, device) -> the ranks."""
    left: Callable[[Plan, str, tuple[str, ...]], Left] | None = None
    """(plan, device, workers that were lost) -> what is left after a fault; None where a script starts the ranks.
    ExecutorError."""


TARGETS = ("local", "torchrun", "slurm", "kubernetes", "dask")


def find_target(
    name: str, scheduler: Any = None, *, ports: str | None = None, image: str | None = None, claim: str | None = None
) -> Target:
    """The target of that name.

    `scheduler` is the Dask client or address for `dask`; `image` and `claim` are names of a container image and of a
    volume claim for `kubernetes`; `ports` ("29500-29600") is where the ranks may meet, on machines apart.
    UnknownNameError; OptionError for an option that the target cannot use.
    """
    if name not in TARGETS:
        raise UnknownNameError("No such launch target", found=repr(name), remedy=nearest_names(name, TARGETS))
    if ports is not None and name == "local":
        raise OptionError(
            "The target local needs no ports: its ranks meet by a file",
            found=f"{ports!r}",
            remedy="Leave them out, or choose another target.",
        )
    meeting = None if ports is None else parse_ports(ports)
    if name != "kubernetes" and (given := image or claim):
        raise OptionError(
            "Images and volume claims are for the target kubernetes",
            found=f"{given!r} with the target {name}",
            remedy="Give the target kubernetes, or leave them out.",
        )

    def start(folder: Path, plan: Plan, device: str, only: tuple[str, ...] | None = None) -> Ranks:
        return DaskRanks(folder, rank_count(plan), scheduler, device, meeting, only)

    def left(plan: Plan, device: str, lost: tuple[str, ...]) -> Left:
        """The hosts that answer and reach each other, as many as the plan needs."""
        nodes, per_node = plan.cluster.nodes, plan.cluster.devices_per_node
        nodes, per_node, workers, names = hosts_left(scheduler, device, nodes, per_node, lost)
        return Left(nodes=nodes, devices_per_node=per_node, hosts=names, start=partial(start, only=workers))

    targets = {
        "local": Target(check=check_devices, start=_start_here, left=_all_left),
        "torchrun": Target(check=_anywhere, start=partial(write_torchrun, ports=meeting)),
        "slurm": Target(check=_anywhere, start=partial(write_slurm, ports=meeting)),
        "kubernetes": Target(
            check=lambda _plan, _device: check_kubernetes(image, claim),
            start=partial(write_kubernetes, image=image or "", claim=claim, ports=meeting),
        ),
        "dask": Target(
            check=lambda plan, device: check_workers(scheduler, rank_count(plan), device, meeting),
            start=start,
            left=left,
        ),
    }
    return targets[name]


def rank_count(plan: Plan) -> int:
    """The number of ranks of a plan."""
    return sum(len(stage.devices) for stage in plan.stages)


def _start_here(folder: Path, plan: Plan, _device: str) -> Ranks:
    return LocalRanks(folder, rank_count(plan))


def _all_left(plan: Plan, _device: str, _lost: tuple[str, ...]) -> Left:
    """This machine still has what it had."""
    nodes, devices = plan.cluster.nodes, plan.cluster.devices_per_node
    return Left(nodes=nodes, devices_per_node=devices, hosts="", start=_start_here)


def _anywhere(_plan: Plan, _device: str) -> None:
    """Nothing to check: a script may be for machines that are not visible from here."""
