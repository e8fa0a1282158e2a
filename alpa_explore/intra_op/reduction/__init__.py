"""Exact reductions: a smaller sharding problem with the same least cost, and the way back to the whole.

    arc_consistency   which strategies have a legal partner on every edge, and fit with the rest at its smallest
    factor_graph      FactorGraph: the mutable state of the reductions, and the trail for back substitution
    simplify          `simplify`: arc consistency, then elimination of narrow nodes until none is left; `decompose`: the
                      same, then split into connected components; `restore` completes choices

Everything here is exact. Imports `problem` and `numerics` only: no bounds, no solvers, no stages.
"""
