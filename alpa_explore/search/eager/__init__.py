"""Candidates of all feasible stages first. In the order to read them:

    eager_pricing     `EagerPricing`: searches for all feasible stages, then for those that stay open
    open_questions    which problems may have a better choice than their books know, and the search that would find it
    library           the books of all problems: read from the cache, sharpened by tasks, written back
    version_pricing   several rematerialisation versions of each stage at once

It imports `pricing`, `search.bounds`, `search.stages` and the executor; not `search.lazy_pricing`.
"""
