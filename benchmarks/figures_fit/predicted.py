"""The seconds of all runs with any values of the figures, from their work.

Runs are grouped by device and software, which decide on the figures that concern them; the kernels of all passes of a
group are one table, so that numpy prices them at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np

from alpa_explore.baselines.layout_price import LayoutPricer, passes_of, seconds_of_passes
from alpa_explore.cluster import Cluster
from alpa_explore.cost.kernel_seconds import KernelTable, table_seconds
from alpa_explore.cost.work import PassWork
from alpa_explore.numerics.arrays import Floats, Ints
from benchmarks.figures_fit.figures import Figure, Values
from benchmarks.figures_fit.stored import overlaid
from benchmarks.figures_fit.works import RunWork

Machines: TypeAlias = frozenset[tuple[str, str]]
"""(device preset, software profile) of groups of runs."""


@dataclass(frozen=True, slots=True)
class _Group:
    """The runs of one device and software."""

    runs: tuple[tuple[int, int], ...]
    """(place among all runs, number of its decoder)."""
    passes: tuple[PassWork, ...]
    """Of the decoders, one after the other."""
    decoders: tuple[slice, ...]
    """The passes of each."""
    table: KernelTable
    """The kernels of all passes."""
    ends: Ints
    """For each pass the end of its kernels in the table; without the last."""


class PredictedRuns:
    """Runs whose seconds are asked for again and again."""

    def __init__(self, figures: Sequence[Figure], runs: Iterable[RunWork]) -> None:
        self.figures = tuple(figures)
        self.runs = tuple(runs)
        machines: dict[tuple[str, str], list[int]] = {}
        for place, run in enumerate(self.runs):
            on = run.machine.cluster.device
            machines.setdefault((on.name, on.software.name), []).append(place)
        self._groups = {machine: _group(self.runs, places) for machine, places in machines.items()}

    @property
    def machines(self) -> Machines:
        """Device and software of all runs."""
        return frozenset(self._groups)

    def concerned(self, figure: Figure) -> Machines:
        """The groups of runs whose seconds may depend on a figure."""
        return frozenset(machine for machine in self._groups if figure.concerns(*machine))

    def seconds(self, values: Values, *, changed: Machines | None = None, others: Floats | None = None) -> Floats:
        """Seconds of every run, shape [runs]; with `changed`, of these groups alone, the rest from `others`."""
        seconds = np.zeros(len(self.runs)) if others is None else others.copy()
        for machine, group in self._groups.items():
            if changed is None or machine in changed:
                self._price(group, values, seconds)
        return seconds

    def _price(self, group: _Group, values: Values, seconds: Floats) -> None:
        first = self.runs[group.runs[0][0]].machine.cluster
        device, inside = overlaid(self.figures, values, first.device, first.inside_node)
        kernels = table_seconds(device, group.table)
        of_passes = np.split(kernels, group.ends)
        clusters: dict[tuple[object, ...], Cluster] = {}
        times: dict[tuple[object, ...], Floats] = {}
        for place, number in group.runs:
            run = self.runs[place]
            at, layout = run.machine.cluster, run.layout
            where = (at.nodes, at.devices_per_node, at.between_nodes)
            if where not in clusters:
                clusters[where] = replace(at, device=device, inside_node=inside)
            cluster = clusters[where]
            # A decoder takes the same time in every layout with these in common.
            key = (
                number,
                layout.tensor,
                layout.context,
                layout.expert,
                layout.expert_tensor,
                layout.pipeline > 1,
                where,
            )
            if key not in times:
                part = group.decoders[number]
                times[key] = seconds_of_passes(group.passes[part], of_passes[part], cluster, layout)
            seconds[place] = LayoutPricer(run.work, cluster, layout, run.parts, times[key]).price(sized=False).seconds


def _group(runs: Sequence[RunWork], places: Sequence[int]) -> _Group:
    numbers: dict[tuple[object, ...], int] = {}
    passes: list[PassWork] = []
    decoders: list[slice] = []
    numbered: list[tuple[int, int]] = []
    for place in places:
        run = runs[place]
        key = (id(run.work), run.layout.recompute)
        if key not in numbers:
            numbers[key] = len(numbers)
            passes += (own := passes_of(run.work, run.layout.recompute))
            decoders.append(slice(len(passes) - len(own), len(passes)))
        numbered.append((place, numbers[key]))
    counts = [len(work.kernels) for work in passes]
    return _Group(
        runs=tuple(numbered),
        passes=tuple(passes),
        decoders=tuple(decoders),
        table=KernelTable.of([kernel for work in passes for kernel in work.kernels]),
        ends=np.cumsum(counts)[:-1],
    )
