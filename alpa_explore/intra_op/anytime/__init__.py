"""A choice within a memory limit by a deadline, for problems that the exact methods do not finish.

In the order of imports, lowest first:

    condense                      followers become part of their neighbours
    profile_kernels               bytes above the limit at each time, compiled
    field_kernels                 the cost of every strategy given the other nodes, kept up under moves, compiled
    anneal_kernels, tree_kernels  moves of single nodes and chains; of trees by dynamic programming; compiled
    graph, segments               edges, and the memory of each node, as the kernels read them
    walk                          `Walk`: a choice that moves
    second_thread                 a second thread for the moves
    anneal                        annealing under prices of memory
    search                        `anytime_search`: all of it, with a bound in a second thread

`tuning` holds the constants. Read `search` first.
"""
