"""Numerical helpers that know nothing of the planner.

    arrays          type aliases of numpy arrays for annotations: Floats, Ints, Flags; runs of entries
    compiled        `compiled`, numba's njit with an on-disk cache where there is a place for one; Python runs few steps
    vectors         minima of sums over a few columns, for kernels to call: written in vectors
    memory          freed arrays serve the next ones; Python's garbage collector suspended
    lower_envelope  where two lines cross, and the search between two points of a convex frontier
    multiple_choice  one item of each class at the least cost within a capacity
    shortest_paths  of a graph, between all pairs of nodes or from a few

Imports nothing of this project. `compiled` and `vectors` are the only files that import numba, when a kernel is first
worth it: numba takes 0.15 s to load, and 0.2 s more before the first kernel.

Concepts that others use: Arrivals, Flags, Floats, Ints, LeastSums.
"""
