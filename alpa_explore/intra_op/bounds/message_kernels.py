"""The inner loops of message passing and descent, compiled by numba (30 times faster than one numpy call per edge).

A problem is stored in flat arrays. Node v has the entries nodes[v]:nodes[v+1] of `costs`. Edge e = (a, b) has the
row-major matrix tables[e]:tables[e+1] of `matrices` and the messages rows[e]:rows[e+1] of `into_a` and
columns[e]:columns[e+1] of `into_b`. The edges at node v are the entries incident[v]:incident[v+1] of `edge_at`, of
`is_a` (whether v is a of that edge) and of `other` (the node at the other end).
tests/intra_op/bounds/reference_messages.py has the same in numpy.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from alpa_explore.numerics.arrays import Floats, Ints
from alpa_explore.numerics.compiled import compiled

Flat = tuple[Any, ...]
"""(nodes, costs, tables, matrices, rows, columns, incident, edge_at, is_a, other)"""


@compiled(fastmath={"nnan", "nsz", "contract"})
def _column_minima(matrix: Floats, height: int, width: int, subtract: Floats, minima: Floats) -> None:
    for j in range(width):
        minima[j] = np.inf
    for i in range(height):
        start, offset = i * width, subtract[i]
        for j in range(width):
            minima[j] = min(minima[j], matrix[start + j] - offset)


@compiled(fastmath={"nnan", "nsz", "contract"})
def _row_minima(matrix: Floats, height: int, width: int, subtract: Floats, minima: Floats) -> None:
    for i in range(height):
        start, least = i * width, np.inf
        for j in range(width):
            least = min(least, matrix[start + j] - subtract[j])
        minima[i] = least


@compiled()
def sweep(flat: Flat, forward: bool, into_a: Floats, into_b: Floats, share: Floats, choices: Ints) -> None:
    """Each node in turn collects the minima of its edges and passes `share` of the sum to every edge that lies ahead.

    `choices[v]` becomes its best strategy, given the choices of the nodes before it and the messages of the edges
    ahead.
    """
    nodes, costs, tables, matrices, rows, columns, incident, edge_at, is_a, other = flat
    count = len(nodes) - 1
    largest = 1
    for v in range(count):
        largest = max(largest, nodes[v + 1] - nodes[v])
    message, collected, given = np.empty(largest), np.empty(largest), np.empty(largest)
    for step in range(count):
        v = step if forward else count - 1 - step
        start, size = nodes[v], nodes[v + 1] - nodes[v]
        for i in range(size):
            collected[i] = given[i] = costs[start + i]
        for q in range(incident[v], incident[v + 1]):
            e, u = edge_at[q], other[q]
            matrix = matrices[tables[e] : tables[e + 1]]
            to_a, to_b = into_a[rows[e] : rows[e + 1]], into_b[columns[e] : columns[e + 1]]
            far = nodes[u + 1] - nodes[u]
            if is_a[q]:
                _row_minima(matrix, size, far, to_b, message)
                for i in range(size):
                    to_a[i] = message[i]
            else:
                _column_minima(matrix, far, size, to_a, message)
                for i in range(size):
                    to_b[i] = message[i]
            for i in range(size):
                collected[i] += message[i]
            if (u < v) != forward:
                for i in range(size):
                    given[i] += message[i]
            elif is_a[q]:
                for i in range(size):
                    given[i] += matrix[i * far + choices[u]]
            else:
                for i in range(size):
                    given[i] += matrix[choices[u] * size + i]
        best = 0
        for i in range(1, size):
            if given[i] < given[best]:
                best = i
        choices[v] = best
        for q in range(incident[v], incident[v + 1]):
            e = edge_at[q]
            if (other[q] > v) != forward:
                continue
            if is_a[q]:
                for i in range(size):
                    into_a[rows[e] + i] -= collected[i] * share[v]
            else:
                for i in range(size):
                    into_b[columns[e] + i] -= collected[i] * share[v]


@compiled()
def slacks(flat: Flat, into_a: Floats, into_b: Floats, slack: Floats) -> float:
    """The lower bound; `slack`, laid out as `costs`, gets by how much each strategy raises it at the least."""
    nodes, costs, tables, matrices, rows, columns, incident, edge_at, is_a, other = flat
    bound = 0.0
    for v in range(len(nodes) - 1):
        node_slack = slack[nodes[v] : nodes[v + 1]]
        for i in range(len(node_slack)):
            node_slack[i] = costs[nodes[v] + i]
        for q in range(incident[v], incident[v + 1]):
            e = edge_at[q]
            message = into_a[rows[e] : rows[e + 1]] if is_a[q] else into_b[columns[e] : columns[e + 1]]
            for i in range(len(node_slack)):
                node_slack[i] += message[i]
        least = node_slack.min()
        bound += least
        for i in range(len(node_slack)):
            node_slack[i] -= least
    for v in range(len(nodes) - 1):
        for q in range(incident[v], incident[v + 1]):
            if not is_a[q]:
                continue
            e, u = edge_at[q], other[q]
            height, width = nodes[v + 1] - nodes[v], nodes[u + 1] - nodes[u]
            matrix = matrices[tables[e] : tables[e + 1]]
            to_a, to_b = into_a[rows[e] : rows[e + 1]], into_b[columns[e] : columns[e + 1]]
            by_row, by_column = np.empty(height), np.empty(width)
            _row_minima(matrix, height, width, to_b, by_row)
            _column_minima(matrix, height, width, to_a, by_column)
            for i in range(height):
                by_row[i] -= to_a[i]
            for j in range(width):
                by_column[j] -= to_b[j]
            least = by_row.min()
            bound += least
            for i in range(height):
                slack[nodes[v] + i] += by_row[i] - least
            for j in range(width):
                slack[nodes[u] + j] += by_column[j] - least
    return bound


@compiled()
def given_others(flat: Flat, choices: Ints, v: int, total: Floats) -> None:
    """`total` gets the cost of each strategy of node v given the choices of its neighbours."""
    nodes, costs, tables, matrices, _rows, _columns, incident, edge_at, is_a, other = flat
    size = nodes[v + 1] - nodes[v]
    for i in range(size):
        total[i] = costs[nodes[v] + i]
    for q in range(incident[v], incident[v + 1]):
        e, u = edge_at[q], other[q]
        if is_a[q]:
            far = nodes[u + 1] - nodes[u]
            for i in range(size):
                total[i] += matrices[tables[e] + i * far + choices[u]]
        else:
            for i in range(size):
                total[i] += matrices[tables[e] + choices[u] * size + i]


@compiled()
def descend(flat: Flat, choices: Ints, rounds: int) -> None:
    """Let each node in turn take its best strategy given the others, until none changes. Updates `choices`."""
    nodes, _costs, _tables, _matrices, _rows, _columns, incident, _edge_at, _is_a, other = flat
    count = len(nodes) - 1
    largest = 1
    for v in range(count):
        largest = max(largest, nodes[v + 1] - nodes[v])
    total = np.empty(largest)
    pending, next_pending = np.ones(count, dtype=np.bool_), np.zeros(count, dtype=np.bool_)
    for _ in range(rounds):
        changed = False
        for v in range(count):
            if not pending[v]:
                continue
            size = nodes[v + 1] - nodes[v]
            given_others(flat, choices, v, total)
            best = 0
            for i in range(1, size):
                if total[i] < total[best]:
                    best = i
            if total[best] < total[choices[v]]:
                choices[v] = best
                changed = True
                for q in range(incident[v], incident[v + 1]):
                    next_pending[other[q]] = True
        if not changed:
            break
        for v in range(count):
            pending[v] = next_pending[v]
        next_pending[:] = False
