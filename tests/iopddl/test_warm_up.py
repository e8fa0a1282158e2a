"""What is compiled ahead is all that the search within a memory limit compiles."""

import pytest

from alpa_explore.intra_op.bounds import message_kernels
from alpa_explore.intra_op.memory import price_search
from alpa_explore.intra_op.problem.memory_limit import MemoryLimit
from alpa_explore.iopddl import anneal_kernels, field_kernels, profile_kernels, tree_kernels
from alpa_explore.iopddl.search import solve_within, warm_up_search
from alpa_explore.numerics.compiled import Kernel
from tests.iopddl.test_anytime import large_case

MODULES = (anneal_kernels, field_kernels, profile_kernels, tree_kernels, message_kernels, price_search)


def signatures():
    """What every kernel has been compiled or loaded for in this process."""
    kernels = {name: kernel for m in MODULES for name, kernel in vars(m).items() if isinstance(kernel, Kernel)}
    return {name: tuple(kernel.dispatcher.signatures) for name, kernel in kernels.items()}


@pytest.mark.slow
def test_after_it_a_time_limit_pays_for_no_compiling():
    warm_up_search()
    before = signatures()
    assert len(before) > 20
    problem, items = large_case(3, nodes=300)
    limit = MemoryLimit.of(items, 1.0).least_peak() * 1.2
    solution = solve_within(problem, MemoryLimit.of(items, limit), time_limit_seconds=4.0)
    assert solution.choices
    assert signatures() == before
