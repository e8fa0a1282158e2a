"""The inner loops of message passing, compiled by numba (30 times faster than one numpy call an edge).

A problem is flat here: node v has the entries nodes[v]:nodes[v+1] of `costs`; edge e = (a, b) has the row-major matrix
tables[e]:tables[e+1] of `matrices`, the messages rows[e]:rows[e+1] of `into_a` and columns[e]:columns[e+1] of `into_b`.
The edges at v are around[v]:around[v+1] of `edge_at`; `is_a` says whether v is their a, `other` what is at their far
end. tests/intra_op/bounds/reference_messages.py has the same in numpy.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from alpa_explore.numerics.arrays import Floats, Ints
from alpa_explore.numerics.compiled import compiled

Flat = tuple[Any, ...]
"""(nodes, costs, tables, matrices, rows, columns, around, edge_at, is_a, other)"""


@compiled(fastmath={"nnan", "nsz", "contract"})
def _column_minima(matrix: Floats, height: int, width: int, minus: Floats, found: Floats) -> None:
    for j in range(width):
        found[j] = np.inf
    for i in range(height):
        start, less = i * width, minus[i]
        for j in range(width):
            found[j] = min(found[j], matrix[start + j] - less)


@compiled(fastmath={"nnan", "nsz", "contract"})
def _row_minima(matrix: Floats, height: int, width: int, minus: Floats, found: Floats) -> None:
    for i in range(height):
        start, least = i * width, np.inf
        for j in range(width):
            least = min(least, matrix[start + j] - minus[j])
        found[i] = least


@compiled()
def sweep(flat: Flat, forward: bool, into_a: Floats, into_b: Floats, share: Floats, pointed: Ints) -> None:
    """Each node collects what its edges can give and hands `share` of it to every edge ahead.

    `pointed[v]` is its best strategy given those of the nodes before it and what the edges ahead report.
    """
    nodes, costs, tables, matrices, rows, columns, around, edge_at, is_a, other = flat
    count = len(nodes) - 1
    largest = 1
    for v in range(count):
        largest = max(largest, nodes[v + 1] - nodes[v])
    message, here, given = np.empty(largest), np.empty(largest), np.empty(largest)
    for step in range(count):
        v = step if forward else count - 1 - step
        start, size = nodes[v], nodes[v + 1] - nodes[v]
        here[:size] = costs[start : start + size]
        given[:size] = costs[start : start + size]
        for q in range(around[v], around[v + 1]):
            e, u = edge_at[q], other[q]
            matrix = matrices[tables[e] : tables[e + 1]]
            mine_a, mine_b = into_a[rows[e] : rows[e + 1]], into_b[columns[e] : columns[e + 1]]
            far = nodes[u + 1] - nodes[u]
            if is_a[q]:
                _row_minima(matrix, size, far, mine_b, message)
                mine_a[:] = message[:size]
            else:
                _column_minima(matrix, far, size, mine_a, message)
                mine_b[:] = message[:size]
            for i in range(size):
                here[i] += message[i]
            if (u < v) != forward:
                for i in range(size):
                    given[i] += message[i]
            elif is_a[q]:
                for i in range(size):
                    given[i] += matrix[i * far + pointed[u]]
            else:
                for i in range(size):
                    given[i] += matrix[pointed[u] * size + i]
        best = 0
        for i in range(1, size):
            if given[i] < given[best]:
                best = i
        pointed[v] = best
        for q in range(around[v], around[v + 1]):
            e = edge_at[q]
            if (other[q] > v) != forward:
                continue
            if is_a[q]:
                for i in range(size):
                    into_a[rows[e] + i] -= here[i] * share[v]
            else:
                for i in range(size):
                    into_b[columns[e] + i] -= here[i] * share[v]


@compiled()
def slacks(flat: Flat, into_a: Floats, into_b: Floats, found: Floats) -> float:
    """The bound; `found`, shaped as `costs`, gets what each strategy adds to it at least."""
    nodes, costs, tables, matrices, rows, columns, around, edge_at, is_a, other = flat
    bound = 0.0
    for v in range(len(nodes) - 1):
        here = found[nodes[v] : nodes[v + 1]]
        here[:] = costs[nodes[v] : nodes[v + 1]]
        for q in range(around[v], around[v + 1]):
            e = edge_at[q]
            message = into_a[rows[e] : rows[e + 1]] if is_a[q] else into_b[columns[e] : columns[e + 1]]
            for i in range(len(here)):
                here[i] += message[i]
        least = here.min()
        bound += least
        for i in range(len(here)):
            here[i] -= least
    for v in range(len(nodes) - 1):
        for q in range(around[v], around[v + 1]):
            if not is_a[q]:
                continue
            e, u = edge_at[q], other[q]
            height, width = nodes[v + 1] - nodes[v], nodes[u + 1] - nodes[u]
            matrix = matrices[tables[e] : tables[e + 1]]
            mine_a, mine_b = into_a[rows[e] : rows[e + 1]], into_b[columns[e] : columns[e + 1]]
            by_row, by_column = np.empty(height), np.empty(width)
            _row_minima(matrix, height, width, mine_b, by_row)
            _column_minima(matrix, height, width, mine_a, by_column)
            for i in range(height):
                by_row[i] -= mine_a[i]
            for j in range(width):
                by_column[j] -= mine_b[j]
            least = by_row.min()
            bound += least
            for i in range(height):
                found[nodes[v] + i] += by_row[i] - least
            for j in range(width):
                found[nodes[u] + j] += by_column[j] - least
    return bound


@compiled()
def given_others(flat: Flat, choices: Ints, v: int, total: Floats) -> None:
    """`total` gets what each strategy of node v costs beside the choices of the others."""
    nodes, costs, tables, matrices, _rows, _columns, around, edge_at, is_a, other = flat
    size = nodes[v + 1] - nodes[v]
    total[:size] = costs[nodes[v] : nodes[v + 1]]
    for q in range(around[v], around[v + 1]):
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
    """Let each node in turn take its best strategy given the others, until none moves; `choices` is changed."""
    nodes, _costs, _tables, _matrices, _rows, _columns, around, _edge_at, _is_a, other = flat
    count = len(nodes) - 1
    largest = 1
    for v in range(count):
        largest = max(largest, nodes[v + 1] - nodes[v])
    total = np.empty(largest)
    todo, later = np.ones(count, dtype=np.bool_), np.zeros(count, dtype=np.bool_)
    for _ in range(rounds):
        moved = False
        for v in range(count):
            if not todo[v]:
                continue
            size = nodes[v + 1] - nodes[v]
            given_others(flat, choices, v, total)
            best = 0
            for i in range(1, size):
                if total[i] < total[best]:
                    best = i
            if total[best] < total[choices[v]]:
                choices[v] = best
                moved = True
                for q in range(around[v], around[v + 1]):
                    later[other[q]] = True
        if not moved:
            break
        todo[:] = later
        later[:] = False
