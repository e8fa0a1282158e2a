"""The search: which stages are priced, how exactly, and when the best pipeline is proven.

Read in this order:

- `resolve`: the loop: find the best pipeline by the lower bounds, price its stages, repeat.
- `pipeline_query`: the cluster, options and B of the pipeline that is sought, and its calls of the pipeline DP;
  `stage_profile`: the result.
- `profile_stages`: the public verb for a new plan, with `eager/`: candidates of all stages first.
- `lazy_pricing`: the public verb for another delta, with `bounds/`: lower bounds of all stages first, few are priced.
- `stages/`: which stages are feasible; keys of equal problems; from frontiers to candidates, and back to choices.
- `tuning`: limits.

It calls `pricing` for the costs of a stage and `inter_op.stage_table` for the best pipeline. Plans and the planner
stand above it.
"""
