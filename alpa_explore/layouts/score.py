"""Score predictions: mean absolute percentage error, and Kendall's tau of the order of the layouts of one model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

from alpa_explore.layouts.layout import Layout

GroupKey = tuple[int, int, int, int, int]
"""(hidden, heads, layers, sequence, devices): one model on one number of GPUs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """Errors of a set of predictions; None where there is nothing to score."""

    rows: int
    one_node_error: float | None
    """Mean of |predicted / measured − 1| over the rows on one node."""
    several_nodes_error: float | None
    kendall_tau: float | None
    """Mean over groups, weighted by their numbers of pairs."""
    groups: tuple[tuple[GroupKey, int, float], ...]
    """(group, rows, tau) of groups with at least two rows that differ."""


def score(
    layouts: Sequence[Layout], predicted: Sequence[float], measured: Sequence[float], devices_per_node: int = 8
) -> Score:
    """Compare predictions with measurements, row by row."""
    errors = [abs(p / m - 1) for p, m in zip(predicted, measured, strict=True)]
    single = [e for e, layout in zip(errors, layouts, strict=True) if layout.devices <= devices_per_node]
    several = [e for e, layout in zip(errors, layouts, strict=True) if layout.devices > devices_per_node]
    members: dict[GroupKey, list[int]] = {}
    for i, x in enumerate(layouts):
        members.setdefault((x.hidden, x.heads, x.layers, x.sequence, x.devices), []).append(i)
    groups, weighted, pairs = [], 0.0, 0
    for key, rows in sorted(members.items()):
        tau = kendall_tau([predicted[i] for i in rows], [measured[i] for i in rows])
        if tau is not None:
            count = len(rows) * (len(rows) - 1) // 2
            groups.append((key, len(rows), tau))
            weighted, pairs = weighted + tau * count, pairs + count
    return Score(
        rows=len(errors),
        one_node_error=_mean(single),
        several_nodes_error=_mean(several),
        kendall_tau=weighted / pairs if pairs else None,
        groups=tuple(groups),
    )


def kendall_tau(first: Sequence[float], second: Sequence[float]) -> float | None:
    """tau-b: (concordant − discordant pairs) / √(pairs untied in one × pairs untied in the other); None for 0 / 0.

    Source: Kendall, "The treatment of ties in ranking problems", Biometrika 33 (1945).
    """
    total, untied_first, untied_second = 0, 0, 0
    for i, j in combinations(range(len(first)), 2):
        a = (first[i] > first[j]) - (first[i] < first[j])
        b = (second[i] > second[j]) - (second[i] < second[j])
        total, untied_first, untied_second = total + a * b, untied_first + (a != 0), untied_second + (b != 0)
    norm = float((untied_first * untied_second) ** 0.5)
    return total / norm if norm else None


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None
