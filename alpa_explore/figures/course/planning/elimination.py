"""Eliminating the nodes of a sharding problem one by one, and the tables that this needs.

Eliminating node v with neighbours N(v) leaves a table over N(v): for each combination of their strategies the least
cost of v with them. Its entries are Π K_u over u in N(v), and all of N(v) become neighbours of one another. The largest
number of neighbours over a good order is (an upper bound on) the *treewidth* of the graph: 1 for a tree, 2 for a cycle.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from alpa_explore import units
from alpa_explore.figures.course.states import State, on_circle, slider_figure
from alpa_explore.figures.marks import HIDDEN_AXIS, at, axis, bars, gaps, labels, line, points
from alpa_explore.figures.style import OKABE_ITO, Drawing, Trace, empty, faint, ink, with_theme
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


@with_theme
def elimination_figure(graphs: Mapping[str, tuple[Sequence[int], Sequence[Edge]]]) -> Drawing:
    """For each graph (its numbers of strategies and its edges), all steps on one slider: on the left the graph, the
    node that goes and its neighbours; on the right the entries of the tables so far."""
    states: list[State] = []
    most = 1
    for name, (sizes, edges) in graphs.items():
        steps = elimination_steps(sizes, edges)
        entries = [step.entries for step in steps]
        most = max(most, *entries)
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
            states.append(State(label=f"{name} {number + 1}", sentence=sentence, traces=traces))
    hidden = HIDDEN_AXIS | {"range": [-1.25, 1.25]}
    span = (0, math.log10(most) + 0.4)
    return slider_figure(
        states,
        "step:",
        height=520,
        xaxis={"domain": [0, 0.52], **hidden},
        yaxis=hidden | {"anchor": "x"},
        xaxis2=axis("node, in the order of elimination", domain=[0.64, 1], anchor="y2", type="category"),
        yaxis2=axis("entries of its table", span, anchor="x2", type="log", dtick=1),
        showlegend=False,
        bargap=0.25,
    )


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
