"""A small sharding problem to work on by hand: a strategy for each node, and what the choice costs.

    Σ_v c_v[s_v] + Σ_(v,u) R_vu[s_v, s_u]          Eq. 1 of Alpa (arXiv 2201.12023, §4.2); `ShardingProblem.evaluate`

`workbench_figure` draws one choice (or a relaxed one, in shares); `workbench_menu_figure` has all of them, and those of
three methods, for a page without a kernel.
"""

import math
from collections.abc import Callable, Sequence
from itertools import product
from typing import Any, TypeAlias

import numpy as np

from alpa_explore import units
from alpa_explore.figures.course.interactive import InteractiveFigure, of_states, steady
from alpa_explore.figures.keys import key
from alpa_explore.figures.marks import HIDDEN_AXIS, labels, line, note, on_circle, points
from alpa_explore.figures.style import OKABE_ITO, Drawing, Trace, empty, faint, ink, safe, with_theme
from alpa_explore.intra_op.ilp.enumerated_ilp import Relaxation, relax
from alpa_explore.intra_op.problem.sharding_problem import Choices, ShardingProblem
from alpa_explore.intra_op.solve import solve

MOST_CHOICES = 81
"""Choices of a problem whose menu lists all of them."""
Names: TypeAlias = Sequence[Sequence[str]]
"""For each node its name, then those of its strategies."""


def greedy(problem: ShardingProblem) -> Choices:
    """Node by node the strategy that is cheapest beside the nodes chosen before: what a person does first."""
    choices: list[int] = []
    for v, costs in enumerate(problem.node_costs):
        so_far = costs.copy()
        for (a, b), matrix in zip(problem.edges, problem.edge_costs, strict=True):
            if a == v and b < v:
                so_far += matrix[:, choices[b]]
            elif b == v and a < v:
                so_far += matrix[choices[a], :]
        choices.append(int(so_far.argmin()))
    return tuple(choices)


def dearest(problem: ShardingProblem) -> Choices:
    """The choice that costs most: where work on a problem begins."""
    every = product(*(range(len(costs)) for costs in problem.node_costs))
    return max(every, key=problem.evaluate)


@with_theme
def workbench_figure(
    problem: ShardingProblem, choices: Choices | Relaxation, names: Names | None = None, *, seconds: bool = False
) -> Drawing:
    """Every node as a column of its strategies with their costs, the chosen ones filled; on the lines between two
    nodes the cost of each pair, that of the chosen pair in bold. `seconds`: costs are seconds, else plain numbers."""
    return _state(problem, choices, names or _default_names(problem), seconds, "")


def workbench_menu_figure(
    problem: ShardingProblem, names: Names | None = None, *, seconds: bool = False
) -> InteractiveFigure:
    """The same with a list of all choices, and of the greedy choice, the LP relaxation and the optimum."""
    named = names or _default_names(problem)
    every = list(product(*(range(len(costs)) for costs in problem.node_costs)))
    assert len(every) <= MOST_CHOICES, "a list of so many choices cannot be read"
    words = [", ".join(f"{node[0]}: {node[1 + k]}" for node, k in zip(named, c, strict=True)) for c in every]
    chosen: dict[str, Choices | Relaxation] = dict(zip(words, every, strict=True))
    chosen |= {"greedy": greedy(problem), "LP relaxation": relax(problem), "optimum": solve(problem).choices}
    states = {label: _state(problem, choices, named, seconds, label) for label, choices in chosen.items()}
    start = words[every.index(dearest(problem))]
    return of_states("A sharding problem, and what each choice costs", "Choice", states, start, listed=True)


def _common(problem: ShardingProblem) -> dict[str, Any]:
    most = max(len(costs) for costs in problem.node_costs)
    chain = _is_chain(problem)
    return {
        "height": 170 + (90 * most if chain else 330),
        "xaxis": HIDDEN_AXIS | {"range": [-0.55, len(problem.node_costs) - 0.45] if chain else [-1.75, 1.75]},
        "yaxis": HIDDEN_AXIS | {"range": [0.6 - most, 0.75] if chain else [-1.6, 1.6]},
        "showlegend": False,
        "margin": {"b": 16},
    }


def _default_names(problem: ShardingProblem) -> Names:
    return [[f"node {v}", *(str(k) for k in range(len(costs)))] for v, costs in enumerate(problem.node_costs)]


def _place(problem: ShardingProblem, v: int, k: int) -> tuple[float, float]:
    """A chain is drawn from left to right, any other graph on a circle."""
    if _is_chain(problem):
        return float(v), float(-k)
    x, y = on_circle(v, len(problem.node_costs))
    step = k - (len(problem.node_costs[v]) - 1) / 2
    return (x + 0.5 * step, y) if abs(y) > 0.8 else (x, y - 0.5 * step)


def _state(problem: ShardingProblem, choices: Choices | Relaxation, names: Names, seconds: bool, label: str) -> Drawing:
    if isinstance(choices, Relaxation):
        node_shares, edge_shares, cost = choices.node_shares, choices.edge_shares, choices.objective
    else:
        node_shares = tuple(np.eye(len(c))[k] for c, k in zip(problem.node_costs, choices, strict=True))
        edge_shares = tuple(np.outer(node_shares[a], node_shares[b]) for a, b in problem.edges)
        cost = problem.evaluate(choices)
    text: Callable[[float], str] = units.seconds if seconds else units.number
    nodes = sum(float(s @ c) for s, c in zip(node_shares, problem.node_costs, strict=True))
    edges = sum(float((e * r).sum()) for e, r in zip(edge_shares, problem.edge_costs, strict=True))
    best = solve(problem).objective
    if isinstance(choices, Relaxation) and not choices.whole:
        verdict = f"strategies are chosen in part, the optimum is {text(best)}."
    else:
        is_best = math.isclose(cost, best, rel_tol=1e-6, abs_tol=1e-12)
        verdict = "this is the optimum." if is_best else "a cheaper choice exists."
    head = f"{label}: cost" if label else "Cost"
    sentence = f"{head} {text(cost)} = nodes {text(nodes)} + edges {text(edges)}; {verdict}"
    traces = [*_edges(problem, edge_shares, text), _strategies(problem, node_shares, names, text)]
    notes = []
    for v, node in enumerate(names):
        x, y = _place(problem, v, 0) if _is_chain(problem) else on_circle(v, len(names))
        place = (x, y + 0.55) if _is_chain(problem) else (1.45 * x, 1.42 * y)
        notes.append(note(f"<b>{safe(node[0])}</b>", *place, size=13))
    return steady(traces, sentence, annotations=notes, **_common(problem))


def _edges(problem: ShardingProblem, shares: Sequence[Any], text: Callable[[float], str]) -> list[Trace]:
    """A line for each pair of strategies; those that are chosen, in whole or part, are thick and drawn last."""
    lines = []
    for (a, b), costs, chosen in zip(problem.edges, problem.edge_costs, shares, strict=True):
        for i, j in np.ndindex(costs.shape):
            (ax, ay), (bx, by) = _place(problem, a, i), _place(problem, b, j)
            share, words = float(chosen[i, j]), text(float(costs[i, j]))
            taken, part = share > 1e-6, 1e-6 < share < 1 - 1e-6
            at = 0.24 if _is_chain(problem) else 0.3 if (i + j) % 2 else 0.42  # where labels stand apart
            shown = f"<b>{words}</b>{f' × {share:.2g}' if part else ''}" if taken else words
            x, y = [ax, ax + at * (bx - ax), bx], [ay, ay + at * (by - ay), by]
            look = (OKABE_ITO[5], 4, "dash" if part else "solid") if taken else (faint, 1, "solid")
            looks = labels(["", shown, ""], size=13 if taken else 11)
            lines.append((share, line(x, y, *look, mode="lines+text", **looks)))
    return [line for _, line in sorted(lines, key=lambda pair: pair[0])]


def _strategies(problem: ShardingProblem, shares: Sequence[Any], names: Names, text: Callable[[float], str]) -> Trace:
    cells = [(v, k) for v, costs in enumerate(problem.node_costs) for k in range(len(costs))]
    places = [_place(problem, v, k) for v, k in cells]
    chosen = [float(shares[v][k]) for v, k in cells]
    texts, hover = [], []
    for (v, k), share in zip(cells, chosen, strict=True):
        name, cost = safe(names[v][1 + k]), text(problem.node_costs[v][k])
        part = f"<br>{share:.2g} of it" if 1e-6 < share < 1 - 1e-6 else ""
        texts.append(f"<b>{name}<br>{cost}{part}</b>" if share > 1e-6 else f"{name}<br>{cost}{part}")
        hover.append(f"{safe(names[v][0])}, strategy {name}: cost {cost}, s = {share:.3g}")
    colors = [OKABE_ITO[4] if s > 1 - 1e-6 else OKABE_ITO[1] if s > 1e-6 else empty for s in chosen]
    written = labels(texts, None, 12, ["#000000" if s > 1e-6 else ink for s in chosen])
    looks = {"edge": (ink, [3 if s > 1e-6 else 1 for s in chosen]), "mode": "markers+text", **written}
    keys = [key(operator=f"{v}.{k}") for v, k in cells]
    x, y = [x for x, _ in places], [y for _, y in places]
    return points(x, y, colors, "square", 58, hover=hover, keys=keys, **looks)


def _is_chain(problem: ShardingProblem) -> bool:
    return set(problem.edges) == {(v, v + 1) for v in range(len(problem.node_costs) - 1)}
