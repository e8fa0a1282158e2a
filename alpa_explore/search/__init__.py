"""The search: which stages are priced, how exactly, and when the best pipeline is proven.

Read in this order:
- `resolve`: the loop: ask the pipeline DP for its stages by the lower bounds, price those, repeat;
- `pipeline_query`: the question to the DP; `stage_profile`: the result;
- `profile_stages`: the public verb for a new plan, with `eager/`: candidates of all stages first (`eager_pricing`),
  what is proven of each problem (`convergence`), tasks through cache and executor (`task_runner`), several
  rematerialisation versions at once (`version_pricing`);
- `lazy_pricing`: the public verb for another delta: lower bounds of all stages first (`bounds/`), few are priced;
- `stages/`: which stages are feasible, keys of equal problems, candidates of a stage from its frontiers;
- `tuning`: limits set by measurement.

It stands above the pipeline DP and calls it; plans and the planner stand above it.
"""
