"""The points of the search figure: plans that are nearly equal in throughput and memory are one point."""

from collections.abc import Sequence
from dataclasses import dataclass

from alpa_explore.figures import tuning
from alpa_explore.plans.plan import Plan


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """Plans that are nearly equal or would cover one another (`_near`): first the one on screen, then the fastest."""

    kind: str
    """The baseline that all of them are, without its degrees; '' for plans of the planner."""
    plans: tuple[tuple[int, Plan], ...]
    """(index in `tried`, plan); the mark is at the first."""
    on_the_front: bool
    """Whether one of them is on the Pareto frontier."""

    @property
    def number(self) -> int:
        """The index of the plan at the mark."""
        return self.plans[0][0]

    @property
    def samples_per_second(self) -> float:
        """Of the plan at the mark."""
        return self.plans[0][1].samples_per_second

    @property
    def peak_bytes(self) -> float:
        """Of the plan at the mark."""
        return self.plans[0][1].predicted.peak_bytes_per_device

    def holds(self, plan: Plan) -> bool:
        """Whether `plan` is one of them."""
        return any(other is plan for _, other in self.plans)


def comparable(plan: Plan, tried: Sequence[Plan]) -> list[tuple[int, Plan]]:
    """(index in `tried`, plan) of the plans of the same model; `plan` itself is one of them."""
    same_model = [(number, other) for number, other in enumerate(tried) if other.model.name == plan.model.name]
    return same_model if any(other is plan for _, other in same_model) else [*same_model, (len(tried), plan)]


def pareto_frontier(plans: Sequence[Plan], sizes: Sequence[float] = ()) -> frozenset[int]:
    """Indices of the plans that are not dominated: no other is at least as good in throughput and memory and better in
    one. `sizes` are what they need of a device; without them their bytes."""
    sizes = sizes or [p.predicted.peak_bytes_per_device for p in plans]
    points = [(p.samples_per_second, -size) for p, size in zip(plans, sizes, strict=True)]
    return frozenset(
        i
        for i, (rate, saved) in enumerate(points)
        if not any(r >= rate and s >= saved and (r, s) != (rate, saved) for r, s in points)
    )


def points_of(plan: Plan, shown: Sequence[tuple[int, Plan]]) -> tuple[Point, ...]:
    """The points: that of `plan`, which is one of `shown`, then the fastest."""
    frontier = pareto_frontier([p for _, p in shown])
    spans = [max(of) - min(of) for of in zip(*(_figures(p) for _, p in shown), strict=True)]
    groups: list[list[tuple[int, int, Plan]]] = []
    for place, (number, other) in sorted(
        enumerate(shown), key=lambda item: (item[1][1] is not plan, -item[1][1].samples_per_second)
    ):
        group = next((g for g in groups if _near(g[0][2], other, spans)), None)
        if group is None:
            group = []
            groups.append(group)
        group.append((place, number, other))
    return tuple(
        Point(
            kind=_kind(group[0][2]),
            plans=tuple((number, other) for _, number, other in group),
            on_the_front=any(place in frontier for place, *_ in group),
        )
        for group in groups
    )


def _figures(plan: Plan) -> tuple[float, float]:
    return plan.samples_per_second, plan.predicted.peak_bytes_per_device


def _near(a: Plan, b: Plan, spans: Sequence[float]) -> bool:
    """Whether two plans of a kind differ by little of their figures, or by little of the axes."""
    return _kind(a) == _kind(b) and all(
        abs(x - y) <= max(tuning.SAME_POINT_SHARE * max(x, y), tuning.SAME_PLACE_SHARE * span)
        for x, y, span in zip(_figures(a), _figures(b), spans, strict=True)
    )


def _kind(plan: Plan) -> str:
    return plan.options.baseline.split(" ")[0]
