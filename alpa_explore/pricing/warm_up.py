"""The compiled kernels of composition, loaded or compiled while a model is captured."""

from __future__ import annotations

import time

import numpy as np

from alpa_explore.intra_op.composition.contraction import dominance, kernels
from alpa_explore.intra_op.composition.contraction.contract import contract
from alpa_explore.intra_op.composition.contraction.dominance import without_dominated
from alpa_explore.intra_op.composition.contraction.priced_problem import PricedProblem
from alpa_explore.intra_op.elimination import order_kernels
from alpa_explore.intra_op.reduction.factor_graph import min_plus_product
from alpa_explore.pricing import tuning


def warm_up() -> None:
    """Load this module and the compiled kernels of composition, while the model is captured."""
    warm_up_contraction()
    warm_up_others()


def warm_up_contraction() -> None:
    """Load or compile the kernels that contract a problem: 9 of the 15 s that compiling all of them takes."""
    contraction = contract(_small_problem(), (2, 3))
    assert contraction is not None, "a small problem can be contracted"
    contraction.complete(np.zeros(1, dtype=np.int64), np.zeros((1, 2), dtype=np.int64))


def warm_up_others() -> None:
    """Load or compile the kernels of dominance, of products and of the elimination order."""
    without_dominated(_small_problem(), (2, 3))  # `contract` does that for large problems
    size = 4
    table = np.zeros((1, size, size))
    min_plus_product(table, table, np.empty((1, size, size)))
    ones = np.ones(size)
    order_kernels.search(np.ones((size, size), dtype=np.bool_), ones, ones, ones == 0.0, 1, 1.0, 0.0)


def _small_problem() -> PricedProblem:
    size = 24
    cost, matrix = np.zeros((1, size)), np.zeros((1, size, size))
    return PricedProblem.of((cost,) * 4, ((0, 1), (1, 2), (0, 3), (2, 3)), (matrix,) * 4, prices=1)


def warm_up_worker() -> None:
    """`warm_up` in a worker of this machine: another process is compiling what is not on disk yet, so wait for it."""
    end = time.monotonic() + tuning.KERNELS_WAIT_SECONDS
    if all(kernel.dispatcher.stats.cache_path is not None for kernel in COMPOSITION_KERNELS):
        while time.monotonic() < end and not all(kernel.on_disk for kernel in COMPOSITION_KERNELS):
            time.sleep(tuning.KERNELS_LOOK_SECONDS)
    warm_up()


COMPOSITION_KERNELS = (
    kernels.run_program,
    kernels.backtrack,
    min_plus_product,
    dominance.keep_undominated,
    order_kernels.search,
)
"""What `warm_up` compiles, and no plan does without."""
