"""`ax.scaling`: the best uniform layout on each of several devices and numbers of nodes, and what does not fit.

The leanest layouts come first: they say whether the model fits at all, and nothing else is priced where it does not.
Works are read once for all clusters of a device. What is known so far goes to `partial`, and a cancelled call answers
with it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import isfinite
from typing import Any, Literal

from alpa_explore.cluster import Cluster
from alpa_explore.cluster.presets import load_preset, rack_of
from alpa_explore.errors import AlpaExploreError, CancelledError, OptionError
from alpa_explore.execution.executors import Executor
from alpa_explore.execution.progress import ProgressCallback
from alpa_explore.planner.resources import Resources
from alpa_explore.uniform_layouts import tuning
from alpa_explore.uniform_layouts.enumeration import leanest
from alpa_explore.uniform_layouts.layouts import Question
from alpa_explore.uniform_layouts.ranking import PricedLayout

HOUR = 3600.0
BILLION = 1e9


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingPoint:
    """A model on one cluster."""

    cluster: Cluster
    state: Literal["waiting", "fits", "priced", "does not fit", "refused"] = "waiting"
    """'fits': the leanest layouts fit, and the fastest is not known yet."""
    best: PricedLayout | None = None
    """The fastest that fits."""
    nearest: PricedLayout | None = None
    """Where none fits: the layout that lacks least."""
    reason: str = ""
    """Why there is no layout at all."""
    layouts: int = 0
    """Number of layouts that were priced."""
    efficiency: float | None = None
    """Tokens a second of a device, relative to those on the fewest devices of its kind on which the model fits."""
    dollars_per_billion_tokens: float | None = None
    """None where the user gave no price of a device-hour."""

    @property
    def device(self) -> str:
        """Name of the device."""
        return self.cluster.device.name

    @property
    def missing_bytes(self) -> float:
        """What a device lacks for the leanest layout; 0 where one fits, or it is not known."""
        return 0.0 if self.nearest is None else self.nearest.missing_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Scaling:
    """A model on several devices and numbers of nodes."""

    model: str
    global_batch: int
    sequence: int
    precision: str
    points: tuple[ScalingPoint, ...]
    """By device, in the order that was asked for, then by nodes."""
    prices: tuple[tuple[str, float], ...] = ()
    """(device, dollars for an hour of one)."""
    whole: bool = False
    """Whether every point is known."""

    @property
    def devices(self) -> tuple[str, ...]:
        """The devices, in order."""
        return tuple(dict.fromkeys(point.device for point in self.points))

    def of(self, device: str) -> tuple[ScalingPoint, ...]:
        """The points of a device, by nodes."""
        return tuple(point for point in self.points if point.device == device)

    def smallest(self, device: str) -> ScalingPoint | None:
        """The fewest nodes of a device on which the model fits."""
        return next((point for point in self.of(device) if point.best is not None), None)


def scaling(
    model: str,
    devices: Sequence[str] = ("h100",),
    nodes: Sequence[int] = (1, 2, 4, 8),
    *,
    devices_per_node: int | None = None,
    software: str | None = None,
    global_batch: int | None = None,
    sequence: int | None = None,
    precision: str | None = None,
    prices: Mapping[str, float] | None = None,
    scheduler: Any = None,
    cache: bool = True,
    progress: ProgressCallback | None = None,
    partial: Callable[[Scaling], None] | None = None,
    cancel: threading.Event | None = None,
    known_alone: bool = False,
) -> Scaling:
    """For each device and number of nodes: the fastest uniform layout, or by how much the leanest does not fit.

    `prices` are dollars for an hour of a device, by its name; without one nothing is said of cost. Nodes have
    `devices_per_node` devices, by default 8, or those of a rack that are used. The other arguments are those of
    `ax.layouts`. UnknownNameError for a device, OptionError for a number of nodes or a price that is none; what one
    cluster refuses is the reason of its point. Once `cancel` is set, what is known by then is the answer; with
    `known_alone`, what is known without reading a work.
    """
    costs = checked_prices(prices or {}, devices)
    clusters = clusters_of(devices, nodes, devices_per_node, software)
    question = Question.of(model, global_batch, sequence, precision, cache=cache)
    answer = Scaling(
        model=question.model.name,
        global_batch=question.global_batch,
        sequence=question.sequence,
        precision=question.precision,
        points=tuple(ScalingPoint(cluster=cluster) for cluster in clusters),
        prices=tuple(costs.items()),
    )

    def known(number: int, point: ScalingPoint) -> None:
        nonlocal answer
        points = (*answer.points[:number], point, *answer.points[number + 1 :])
        answer = with_prices(replace(answer, points=points, sequence=question.sequence), costs)
        if partial is not None:
            partial(answer)

    with Executor(scheduler) as executor:
        resources = Resources(executor=executor, store=None, progress=progress, cancel=cancel)
        try:
            for number, point in enumerate(answer.points):
                known(number, _lean(question, point, resources, known_alone=known_alone))
            for number, point in enumerate(answer.points):
                if point.state == "fits":
                    found = question.answer(point.cluster, resources, known_alone=known_alone)
                    if not found.whole:
                        return answer
                    known(
                        number, replace(point, state="priced", best=found.best or point.best, layouts=len(found.ranked))
                    )
        except CancelledError:
            return answer
    return replace(answer, whole=True)


def _lean(question: Question, point: ScalingPoint, resources: Resources, *, known_alone: bool) -> ScalingPoint:
    """Whether the model fits, by its leanest layouts."""
    if resources.cancel is not None and resources.cancel.is_set():
        raise CancelledError("The scaling was cancelled", found="some points are not known", remedy="Ask again.")
    try:
        lean = question.answer(point.cluster, resources, only=leanest, known_alone=known_alone)
    except CancelledError:
        raise
    except AlpaExploreError as error:
        return replace(point, state="refused", reason=f"{error.what}: {error.found}")
    if not lean.ranked:
        return replace(
            point,
            state="refused",
            reason=f"no layout divides {question.global_batch:,} samples over {point.cluster.devices:,} devices",
        )
    if lean.best is None:
        return replace(point, state="does not fit", nearest=lean.nearest, layouts=len(lean.ranked))
    return replace(point, state="fits", best=lean.best, layouts=len(lean.ranked))


def with_prices(scaling: Scaling, prices: Mapping[str, float]) -> Scaling:
    """The same points with efficiencies, and dollars at other prices."""
    points: list[ScalingPoint] = []
    for device in scaling.devices:
        base: float | None = None
        for point in scaling.of(device):
            if point.best is None or point.state != "priced":
                points.append(replace(point, efficiency=None, dollars_per_billion_tokens=None))
                continue
            each = point.best.tokens_per_second / point.cluster.devices
            base = each if base is None else base
            cost = prices.get(device)
            dollars = None if cost is None else cost / HOUR / each * BILLION
            points.append(replace(point, efficiency=each / base, dollars_per_billion_tokens=dollars))
    return replace(scaling, points=tuple(points), prices=tuple(prices.items()))


def clusters_of(
    devices: Iterable[str], nodes: Iterable[int], devices_per_node: int | None = None, software: str | None = None
) -> tuple[Cluster, ...]:
    """A cluster for each device and number of nodes, ascending."""
    counts = sorted(set(nodes))
    if not counts or any(isinstance(n, bool) or not isinstance(n, int) or n < 1 for n in counts):
        raise OptionError(
            "The numbers of nodes must be whole numbers of 1 or more",
            found=", ".join(map(str, nodes)) or "none",
            remedy="For example 1, 2, 4, 8.",
        )
    names = list(dict.fromkeys(load_preset(device)[0].name for device in devices))
    if not names:
        raise OptionError("No device is given", found="none", remedy="For example h100, b200.")
    clusters = []
    for name in names:
        rack = rack_of(name)
        usual = 8 if rack is None else min(rack.devices, tuning.RACK_USED)
        each = usual if devices_per_node is None else devices_per_node
        suffix = "" if software is None else f"@{software}"
        clusters += [Cluster.parse(f"{count}x{each}:{name}{suffix}") for count in counts]
    return tuple(clusters)


def checked_prices(prices: Mapping[str, object], devices: Iterable[str]) -> dict[str, float]:
    """Prices by the name of the preset. OptionError for one that is no number above 0, or of a device not asked for."""
    names = {load_preset(device)[0].name for device in devices}
    checked = {}
    for device, price in prices.items():
        name = load_preset(device)[0].name
        if name not in names:
            raise OptionError(
                "A price is given for a device that is not asked for",
                found=device,
                remedy=f"Asked for: {', '.join(sorted(names))}.",
            )
        if isinstance(price, bool) or not isinstance(price, int | float) or not isfinite(price) or price <= 0:
            raise OptionError(
                f"The price of a device-hour of {name} is no number above 0",
                found=repr(price),
                remedy="Give dollars for an hour of one device, for example 2.5.",
            )
        checked[name] = float(price)
    return checked
