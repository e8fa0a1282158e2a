"""Candidates of all stages first: `eager_pricing`, with `convergence` (what is proven of each problem, which search
would close its gap), `task_runner` (tasks through cache and executor) and `version_pricing` (several rematerialisation
versions at once).
"""
