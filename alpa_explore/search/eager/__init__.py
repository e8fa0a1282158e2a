"""Candidates of all feasible stages first. In the order to read them:

    eager_pricing         `EagerPricing`: the tasks of `pricing` for all feasible stages, then for those that stay open
    convergence           what is proven of each sharding problem, and which search would close its gap
    known_meshes          what the cache knows of a mesh from another B or another memory: bounds and candidates
    known_within_memory   the same of choices that fit, from a larger B
    within_memory         `WithinMemory`: choices that fit, recalled or found by tasks
    task_runner           looks tasks up in the cache and runs the others on the executor
    version_pricing       several rematerialisation versions of each stage at once

It imports `pricing`, `search.bounds`, `search.stages` and the executor; not `search.lazy_pricing`.
"""
