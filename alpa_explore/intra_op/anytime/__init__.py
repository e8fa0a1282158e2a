"""A choice within a memory limit by a deadline, for problems that the exact methods do not finish.

In the order of imports, lowest first:

    condense, anneal_kernels      followers become part of their neighbours; the moves, compiled
    tree_kernels                  moves of whole trees by dynamic programming, compiled
    segments                      memory of each node at the times at which the limit can be exceeded
    anneal                        annealing under prices of memory
    search                        `anytime_search`: all of it, with a bound in a second thread

`tuning` holds the constants. Read `search` first.
"""
