"""Eliminating the nodes of a sharding problem one by one, and the tables that this needs.

Eliminating node v with neighbours N(v) leaves a table over N(v): for each combination of their strategies the least
cost of v with them. Its entries are Π K_u over u in N(v), and all of N(v) become neighbours of one another. The largest
number of neighbours over a good order is (an upper bound on) the *treewidth* of the graph: 1 for a tree, 2 for a cycle.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import plotly.graph_objects as go

from alpa_explore import units
from alpa_explore.figures.course.states import State, slider_figure
from alpa_explore.figures.style import HOVER_TEXT, OKABE_ITO, empty, faint, ink
from alpa_explore.intra_op.elimination.elimination_order import elimination_order

Edge = tuple[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class EliminationStep:
    """The graph when one node is eliminated."""

    node: int
    neighbours: tuple[int, ...]
    entries: int
    """Of the table over the neighbours."""
    edges: tuple[Edge, ...]
    """Before the node is eliminated."""


def elimination_steps(sizes: Sequence[int], edges: Sequence[Edge]) -> list[EliminationStep]:
    """The steps in the order that the library takes (`elimination_order`)."""
    around: list[set[int]] = [set() for _ in sizes]
    for a, b in edges:
        around[a].add(b)
        around[b].add(a)
    steps = []
    for node in elimination_order(sizes, edges).nodes:
        neighbours = tuple(sorted(around[node]))
        now = tuple((a, b) for a in range(len(sizes)) for b in sorted(around[a]) if a < b)
        entries = math.prod(sizes[u] for u in neighbours)
        steps.append(EliminationStep(node=node, neighbours=neighbours, entries=entries, edges=now))
        for u in neighbours:
            around[u] |= set(neighbours)
            around[u] -= {u, node}
        around[node] = set()
    return steps


def width(steps: Sequence[EliminationStep]) -> int:
    """Neighbours of the node that had most when it was eliminated: an upper bound on the treewidth."""
    return max((len(step.neighbours) for step in steps), default=0)


def elimination_figure(graphs: Mapping[str, tuple[Sequence[int], Sequence[Edge]]], theme: str = "light") -> go.Figure:
    """For each graph (its numbers of strategies and its edges), all steps on one slider: on the left the graph, the
    node that goes and its neighbours; on the right the entries of the tables so far."""
    states: list[State] = []
    most = max(step.entries for sizes, edges in graphs.values() for step in elimination_steps(sizes, edges))
    for name, (sizes, edges) in graphs.items():
        steps = elimination_steps(sizes, edges)
        for number, step in enumerate(steps):
            traces = [*_graph(sizes, edges, steps, number, theme), *_tables(steps, number, theme)]
            row = [step.entries for step in steps[: number + 1]]
            neighbours = ", ".join(map(str, step.neighbours)) or "no node"
            sentence = (
                f"{name}: node {step.node} goes and leaves a table over {neighbours}, {units.count(step.entries)} "
                f"entries; largest so far {units.count(max(row))} of {units.count(math.prod(sizes))} choices."
            )
            states.append(State(label=f"{name} {number + 1}", sentence=sentence, traces=traces))
    hidden = {"visible": False, "fixedrange": True, "range": [-1.25, 1.25]}
    return slider_figure(
        states,
        "step:",
        theme=theme,
        height=520,
        xaxis={"domain": [0, 0.52], **hidden},
        yaxis=hidden | {"anchor": "x"},
        xaxis2={
            "domain": [0.64, 1],
            "anchor": "y2",
            "title": {"text": "node, in the order of elimination"},
            "type": "category",
        },
        yaxis2={
            "anchor": "x2",
            "type": "log",
            "title": {"text": "entries of its table"},
            "dtick": 1,
            "range": [0, math.log10(most) + 0.4],
        },
        showlegend=False,
        bargap=0.25,
    )


def _graph(
    sizes: Sequence[int], edges: Sequence[Edge], steps: Sequence[EliminationStep], number: int, theme: str
) -> list[dict[str, Any]]:
    step, gone = steps[number], {s.node for s in steps[:number]}
    count, original = len(sizes), {tuple(sorted(edge)) for edge in edges}

    def place(v: int) -> tuple[float, float]:
        angle = math.pi / 2 - 2 * math.pi * v / count
        return math.cos(angle), math.sin(angle)

    lines = []
    for kind, dash in ((True, "solid"), (False, "dot")):
        xs: list[float | None] = []
        ys: list[float | None] = []
        for a, b in step.edges:
            if ((a, b) in original) == kind:
                xs += [place(a)[0], place(b)[0], None]
                ys += [place(a)[1], place(b)[1], None]
        look = {"color": faint(theme) if kind else OKABE_ITO[5], "width": 2, "dash": dash}
        lines.append({"type": "scatter", "x": xs, "y": ys, "mode": "lines", "line": look, "hoverinfo": "skip"})
    colors, words = [], []
    for v in range(count):
        state = "goes now" if v == step.node else "eliminated" if v in gone else "stays"
        beside = v in step.neighbours
        colors.append(OKABE_ITO[5] if v == step.node else empty(theme) if v in gone else OKABE_ITO[4 if beside else 2])
        words.append(f"node {v}, {sizes[v]} strategies: {state}{', in the new table' if beside else ''}")
    nodes = {
        "type": "scatter",
        "x": [place(v)[0] for v in range(count)],
        "y": [place(v)[1] for v in range(count)],
        "mode": "markers+text",
        "marker": {
            "size": 30,
            "symbol": ["x" if v in gone else "square" if v == step.node else "circle" for v in range(count)],
            "color": colors,
            "line": {"width": 1, "color": ink(theme)},
        },
        "text": ["" if v in gone else f"<b>{v}</b>" for v in range(count)],
        "textfont": {"color": "#000000"},
        "hovertext": words,
        "hovertemplate": HOVER_TEXT,
    }
    return [*lines, nodes]


def _tables(steps: Sequence[EliminationStep], number: int, theme: str) -> list[dict[str, Any]]:
    done = steps[: number + 1]
    return [
        {
            "type": "bar",
            "x": [str(step.node) for step in steps],
            "y": [step.entries if place <= number else None for place, step in enumerate(steps)],
            "marker": {"color": [OKABE_ITO[5] if s is done[-1] else OKABE_ITO[0] for s in steps]},
            "text": [units.count(step.entries) if place <= number else "" for place, step in enumerate(steps)],
            "textposition": "outside",
            "cliponaxis": False,
            "textfont": {"color": ink(theme)},
            "hovertemplate": "node %{x}: a table of %{y} entries<extra></extra>",
            "xaxis": "x2",
            "yaxis": "y2",
        }
    ]
