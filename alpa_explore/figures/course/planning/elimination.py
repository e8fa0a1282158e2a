"""Eliminating the nodes of a sharding problem one by one, and the tables that this needs.

Eliminating node v with neighbours N(v) leaves a table over N(v): for each combination of their strategies the least
cost of v with them. Its entries are Π K_u over u in N(v), and all of N(v) become neighbours of one another. The largest
number of neighbours over a good order is (an upper bound on) the *treewidth* of the graph: 1 for a tree, 2 for a cycle.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from alpa_explore import units
from alpa_explore.figures.course.interactive import InteractiveFigure, of_states, steady
from alpa_explore.figures.marks import HIDDEN_AXIS, at, axis, bars, gaps, labels, line, on_circle, points
from alpa_explore.figures.style import OKABE_ITO, Trace, empty, faint, ink
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


def elimination_steps(
    sizes: Sequence[int], edges: Sequence[Edge], order: Sequence[int] | None = None
) -> list[EliminationStep]:
    """The steps in this order of the nodes, or in the one that the library takes (`elimination_order`)."""
    around: list[set[int]] = [set() for _ in sizes]
    for a, b in edges:
        around[a].add(b)
        around[b].add(a)
    steps = []
    for node in elimination_order(sizes, edges).nodes if order is None else order:
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


def elimination_figure(graphs: Mapping[str, tuple[Sequence[int], Sequence[Edge]]]) -> InteractiveFigure:
    """For each graph (its numbers of strategies and its edges), all steps on one slider: on the left the graph, the
    node that goes and its neighbours; on the right the entries of the tables so far."""
    every = {name: elimination_steps(*graph) for name, graph in graphs.items()}
    most = max(step.entries for steps in every.values() for step in steps)
    hidden = HIDDEN_AXIS | {"range": [-1.25, 1.25]}
    common: Trace = {
        "height": 430,
        "xaxis": {"domain": [0, 0.52], **hidden},
        "yaxis": hidden | {"anchor": "x"},
        "xaxis2": axis("node, in the order of elimination", domain=[0.64, 1], anchor="y2", type="category"),
        "yaxis2": axis("entries of its table", (0, math.log10(most) + 0.4), anchor="x2", type="log", dtick=1),
        "showlegend": False,
        "bargap": 0.25,
    }
    states = {}
    for name, steps in every.items():
        sizes, edges = graphs[name]
        entries = [step.entries for step in steps]
        for number, step in enumerate(steps):
            done = [entry if place <= number else None for place, entry in enumerate(entries)]
            texts = ["" if entry is None else units.count(entry) for entry in done]
            looks = {**labels(texts, "outside", 13), "cliponaxis": False, **at(2)}
            colors = [OKABE_ITO[5] if place == number else OKABE_ITO[0] for place in range(len(steps))]
            nodes, hover = [str(s.node) for s in steps], "node %{x}: a table of %{y} entries"
            tables = bars(nodes, done, colors, hover=hover, **looks)
            neighbours = ", ".join(map(str, step.neighbours)) or "no node"
            sentence = (
                f"{name}: node {step.node} goes and leaves a table over {neighbours}, {units.count(step.entries)} "
                f"entries; largest so far {units.count(max(entries[: number + 1]))} of "
                f"{units.count(math.prod(sizes))} choices."
            )
            traces = [*_graph(sizes, edges, steps, number), tables]
            states[f"{name} {number + 1}"] = steady(traces, sentence, **common)
    return of_states("Eliminating the nodes of a graph one by one", "Step", states, plays=True)


def _graph(sizes: Sequence[int], edges: Sequence[Edge], steps: Sequence[EliminationStep], number: int) -> list[Trace]:
    step, gone = steps[number], {s.node for s in steps[:number]}
    count, original = len(sizes), {tuple(sorted(edge)) for edge in edges}
    places = [on_circle(v, count) for v in range(count)]
    lines = []
    for kind, color, dash in ((True, faint, "solid"), (False, OKABE_ITO[5], "dot")):
        paths = [(places[a], places[b]) for a, b in step.edges if ((a, b) in original) == kind]
        lines.append(line(*gaps(*paths), color, 2, dash))
    colors, symbols, words = [], [], []
    for v in range(count):
        now, left, beside = v == step.node, v in gone, v in step.neighbours
        colors.append(OKABE_ITO[5] if now else empty if left else OKABE_ITO[4 if beside else 2])
        symbols.append("x" if left else "square" if now else "circle")
        state = "goes now" if now else "eliminated" if left else "stays"
        words.append(f"node {v}, {sizes[v]} strategies: {state}{', in the new table' if beside else ''}")
    texts = labels(["" if v in gone else f"<b>{v}</b>" for v in range(count)], None, 13, "#000000")
    looks = {"edge": (ink, 1), "hover": words, "mode": "markers+text", **texts}
    return [*lines, points([x for x, _ in places], [y for _, y in places], colors, symbols, 30, **looks)]
