"""The number of microbatches B where the planner chooses it.

- `choose`: B "auto" of `ax.plan`: a plan for each candidate, and the one with the highest throughput.
- `tried`: T, throughput and memory at every other B, from the stage costs of a plan.
"""
