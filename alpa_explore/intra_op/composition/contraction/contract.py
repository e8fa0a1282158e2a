"""A problem contracted to a table over a few of its nodes, at several prices at once: all others are minimised out.

    table[p, k] = min { cost at price p of a choice that has the strategies k at the kept nodes }

The elimination is planned on sizes alone (`program`) and carried out by compiled kernels (`kernels`).
"""

from __future__ import annotations

import math
import threading
from dataclasses import dataclass

import numpy as np

from alpa_explore.execution.available_memory import require_memory
from alpa_explore.intra_op.composition.contraction import kernels, tuning
from alpa_explore.intra_op.composition.contraction.dominance import without_dominated
from alpa_explore.intra_op.composition.contraction.priced_problem import PRICED, RESULT, PricedProblem
from alpa_explore.intra_op.composition.contraction.program import Program, compile_program, contraction_order
from alpa_explore.intra_op.composition.contraction.steps import POINTS
from alpa_explore.intra_op.elimination.elimination_order import Limits
from alpa_explore.intra_op.problem.sharding_problem import Choices, ShardingProblem
from alpa_explore.intra_op.reduction.factor_graph import Contradiction
from alpa_explore.numerics.arrays import Floats, Ints


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Contraction:
    """The table over the kept nodes, and the backtracking to choices of every node."""

    table: Floats
    """[prices, combinations of the strategies of the kept nodes, in C order]; inf where no choice is legal. Not an axis
    for each kept node: an unrolled LSTM keeps more of them than the 64 axes that a NumPy array can have."""
    keep: tuple[int, ...]
    _problem: PricedProblem
    """Without dominated strategies, where it was large enough to drop them."""
    _strategies: tuple[Ints, ...] | None
    """For every node its strategies in the whole problem; None where that was contracted as it is."""
    _program: Program
    _memory: Floats | None
    """The tables that backtracking reads; None where they are too large to keep."""

    def complete(self, prices: Ints, kept: Ints) -> Ints:
        """For each row of `kept` [rows, kept nodes] a best choice of every node at prices[row], [rows, nodes]."""
        choices = np.zeros((len(kept), len(self._problem.form.sizes)), dtype=np.int64)
        choices[:, list(self.keep)] = kept
        self._minimise(prices, choices)
        for v, strategies in enumerate(self._strategies or ()):
            choices[:, v] = strategies[choices[:, v]]
        return choices

    def _minimise(self, prices: Ints, choices: Ints) -> None:
        """Fill in the nodes of the reduced problem that are not kept."""
        if self._memory is not None:
            self._backtrack(self._memory, len(self.table), prices, choices)
            return
        for price in np.unique(prices).tolist():
            at_price = prices == price
            rows = choices[at_price]
            memory, _ = _run(self._program, self._problem, slice(price, price + 1))
            self._backtrack(memory, 1, np.zeros(len(rows), dtype=np.int64), rows)
            choices[at_price] = rows

    def _backtrack(self, memory: Floats, price_count: int, prices: Ints, choices: Ints) -> None:
        program, (offsets, price_step) = self._program, self._program.space_offsets(price_count)
        kernels.backtrack(
            program.recipes,
            program.recipe_begins,
            program.slice_code,
            program.slice_begins,
            program.backtracking_order,
            POINTS,
            np.empty(program.slice_entries),
            memory,
            offsets,
            price_step,
            np.ascontiguousarray(prices),  # a column of a table would be compiled as another type
            choices,
        )


def contract(problem: PricedProblem, keep: tuple[int, ...], limits: Limits = tuning.LIMITS) -> Contraction | None:
    """`problem` as a table over `keep`; None where that exceeds `limits`."""
    whole, prices = problem.form, len(problem.priced_costs)
    entries = math.prod(whole.sizes[v] for v in keep)
    if entries > limits.largest_table:
        return None
    order = contraction_order(whole, frozenset(keep))
    strategies: tuple[Ints, ...] | None = None
    if order.joined_entries * prices >= tuning.ENTRIES_WORTH_DOMINANCE:
        problem, strategies = without_dominated(problem, keep)
    if not limits.allow(order):
        order = contraction_order(problem.form, frozenset(keep))
        if not limits.allow(order):
            return None
    program = compile_program(problem.form, keep, order.nodes)
    stored = None
    if program.stored_entries(prices) <= tuning.BACKTRACKING_ENTRIES:
        memory, table = _run(program, problem, slice(prices))
        table = table.copy()
        if program.stored_entries(prices) >= tuning.LARGE_ENTRIES:
            require_memory(program.stored_entries(prices) * memory.itemsize)
        stored = memory[: program.stored_entries(prices)].copy()
    else:
        table = np.concatenate([_run(program, problem, slice(p, p + 1))[1].copy() for p in range(prices)])
    return Contraction(
        table=table.reshape(-1, entries),
        keep=keep,
        _problem=problem,
        _strategies=strategies,
        _program=program,
        _memory=stored,
    )


def contract_problem(problem: ShardingProblem, keep: tuple[int, ...], limits: Limits) -> Contraction | None:
    """The same for a problem without prices: its table has one row."""
    node_costs = [costs[None] for costs in problem.node_costs]
    edge_costs = [costs[None] for costs in problem.edge_costs]
    return contract(PricedProblem.of(node_costs, problem.edges, edge_costs, prices=1), keep, limits)


def optimum(problem: ShardingProblem, limits: Limits) -> Choices | None:
    """A least-cost choice; None where the problem is too wide. Raises Contradiction where there is none."""
    contraction = contract_problem(problem, (), limits)
    if contraction is None:
        return None
    if contraction.table[0, 0] == np.inf:
        raise Contradiction(0)
    return tuple(contraction.complete(np.zeros(1, dtype=np.int64), np.zeros((1, 0), dtype=np.int64))[0].tolist())


def _run(program: Program, problem: PricedProblem, prices: slice) -> tuple[Floats, Floats]:
    """The memory after all steps at some of the prices, and the result of each of them, [prices, entries]. Both are
    valid until this thread runs another program."""
    priced_costs = problem.priced_costs[prices]
    offsets, price_step = program.space_offsets(len(priced_costs))
    memory = _working_memory(program.total_entries(len(priced_costs)))
    memory[: len(problem.common_costs)] = problem.common_costs
    kernels.run_program(
        program.code, program.code_begins, program.common_steps, memory, priced_costs, PRICED, offsets, price_step
    )
    results = memory[offsets[RESULT] :][: len(priced_costs) * price_step[RESULT]]
    return memory, results.reshape(len(priced_costs), -1)


_thread = threading.local()


def _working_memory(entries: int) -> Floats:
    """Memory to work in. Each thread keeps its own, because fresh memory is slow the first time it is touched."""
    memory: Floats | None = getattr(_thread, "memory", None)
    if memory is None or len(memory) < entries:
        if entries >= tuning.LARGE_ENTRIES:
            require_memory(entries * np.dtype(np.float64).itemsize)
        memory = np.empty(max(entries, tuning.WORKSPACE_ENTRIES // 4))
        if entries <= tuning.WORKSPACE_ENTRIES:
            _thread.memory = memory
    return memory
