"""The planner: the passes in order.

- `plan`: the algorithm on one screen, for one number of microbatches B (`plan_request`): read it first.
- `interface`: `ax.plan`, which calls `plan_request` once, or `microbatches` for B "auto"; with sequences in zig-zag
  order where devices share one and that is faster. `least_time`: lower bounds on T and on what each B lacks, by
  which most B need no plan.
- `request`: the arguments of `ax.plan` as one checked value; `resources`: executor, cache, progress, cancellation,
  seconds of each pass.
- `kernels_meanwhile`: kernels of the solvers compiled in another process while a model is captured.
- `microbatch_graph`: the graph of one microbatch (catalogue names go to `tracing.catalogue`); `default_layering`: its
  layers for a delta (by `layering.dp`), their number where the user gives none, and the least that a layer does.
- `replan`: `ax.replan`: another B, other pipeline options or another delta, from the stage costs of a plan.
- `nearest_fit`: the error when nothing fits, with the nearest change that would; `fitting`: on how many more devices it
  fits. `tuning`: limits.

Everything below (search, plans, inter_op, …) may be imported here; baselines, questions, figures and the command line
stand above.

Concepts that others use: FittingCluster, PlanRequest, Resources, Running.
"""
