"""A contraction planned on sizes alone, as arrays of integers that the kernels read.

Blocks of one model have the same sizes on many meshes, and the order of elimination depends on nothing else: a program
is compiled once and run on the costs of each of them, at one price after the other. The orders of elimination are those
of `intra_op.elimination`. Tables are not kept for backtracking where they are large: they are computed again.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from alpa_explore.intra_op.composition.contraction.encoding import (
    concatenated,
    encode_recipe,
    encode_slice,
    encode_step,
)
from alpa_explore.intra_op.composition.contraction.priced_problem import COMMON, PRICED, RESULT, SPACES, ProblemForm
from alpa_explore.intra_op.composition.contraction.steps import SLICES, Elimination, assign_locations, choose_recomputed
from alpa_explore.intra_op.elimination.elimination_order import EliminationOrder, elimination_order
from alpa_explore.numerics.arrays import Ints


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Program:
    """A planned contraction, for any costs."""

    code: Ints
    """For `kernels.run_program`, step by step (`encode_step`)."""
    code_begins: Ints
    """Where each step begins in `code`."""
    common_steps: int
    """So many steps, the first ones, give the same at every price."""
    recipes: Ints
    """For `kernels.backtrack`: how an entry of the table of each step is computed (`encode_recipe`)."""
    recipe_begins: Ints
    slice_code: Ints
    """For `kernels.backtrack`: how the slice of each table that is not stored is filled (`encode_slice`)."""
    slice_begins: Ints
    backtracking_order: Ints
    """The steps that minimise a node out, the last first."""
    space_entries: Ints
    """Entries of every space; of PRICED and RESULT for each price."""
    slice_entries: int

    def space_offsets(self, prices: int) -> tuple[Ints, Ints]:
        """Where every space begins at the first price, and how much further on at each following price."""
        step = np.where(np.isin(SPACES, (PRICED, RESULT)), self.space_entries, 0)
        lengths = np.where(step > 0, self.space_entries * prices, self.space_entries)
        return np.cumsum(lengths) - lengths, step

    def stored_entries(self, prices: int) -> int:
        """Entries that backtracking reads: those of COMMON and PRICED, which come first."""
        return int(self.space_entries[COMMON] + self.space_entries[PRICED] * prices)

    def total_entries(self, prices: int) -> int:
        """Entries of all spaces."""
        return int(self.space_entries.sum() + (self.space_entries[PRICED] + self.space_entries[RESULT]) * (prices - 1))


@lru_cache(maxsize=2048)
def contraction_order(form: ProblemForm, keep: frozenset[int]) -> EliminationOrder:
    """The order in which all nodes but `keep` are eliminated. A node with one strategy has no edges in it: it is only a
    cost of its neighbours."""
    free = [size > 1 or v in keep for v, size in enumerate(form.sizes)]
    edges = tuple(dict.fromkeys((min(e), max(e)) for e in form.edges if free[e[0]] and free[e[1]]))
    return _cached_order(form.sizes, edges, keep)


@lru_cache(maxsize=1024)
def _cached_order(sizes: tuple[int, ...], edges: tuple[tuple[int, int], ...], keep: frozenset[int]) -> EliminationOrder:
    return elimination_order(sizes, edges, keep)


@lru_cache(maxsize=1024)
def compile_program(form: ProblemForm, keep: tuple[int, ...], order: tuple[int, ...]) -> Program:
    """The steps that lead to a table over `keep`, where the other nodes are minimised out in this `order`. One that was
    searched for with more strategies serves as well."""
    free = [size > 1 or v in keep for v, size in enumerate(form.sizes)]
    numbered = (*(v for v in order if free[v]), *keep)
    sizes = [form.sizes[v] for v in numbered]
    eliminated = len(numbered) - len(keep)
    steps = Elimination(form, numbered, sizes, eliminated).steps
    # Tables that no price changes are made before the first price.
    steps.sort(key=lambda step: step.result.priced)
    for i, step in enumerate(steps):
        step.index = i
    slice_entries = choose_recomputed(steps, sizes, eliminated)
    space_entries = assign_locations(steps, form)
    code, code_begins = concatenated([list(encode_step(step, sizes)) for step in steps])
    recipes, recipe_begins = concatenated([list(encode_recipe(step, numbered, sizes, eliminated)) for step in steps])
    sliced = [step for step in steps if step.result.recomputed == SLICES]
    slice_code, slice_begins = concatenated([list(encode_slice(step, numbered, sizes, eliminated)) for step in sliced])
    minimising = [step for step in steps if step.node is not None]
    # By number, not by position: the node that is eliminated first is assigned last.
    minimising.sort(key=lambda step: -(step.node or 0))
    return Program(
        code=code,
        code_begins=code_begins,
        common_steps=sum(not step.result.priced for step in steps),
        recipes=recipes,
        recipe_begins=recipe_begins,
        slice_code=slice_code,
        slice_begins=slice_begins,
        backtracking_order=np.array([step.index for step in minimising], dtype=np.int64),
        space_entries=np.array(space_entries, dtype=np.int64),
        slice_entries=slice_entries,
    )
