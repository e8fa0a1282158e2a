"""The planner: the passes in order.

- `plan`: the algorithm on one screen, for one number of microbatches B: read it first;
- `request`: the arguments of `ax.plan` as one checked value; `resources`: executor, cache, progress, cancellation;
- `interface`: `ax.plan`; `choose_microbatches`: B "auto";
- `replan`: `ax.replan`: another B, other pipeline options, another delta, from the stage costs of a plan;
- `tried_microbatches`: what the stage costs of a plan answer for every other B;
- `microbatch_graph`, `default_layering`: the graph and the layers where the user leaves them to the planner;
- `nearest_fit`: the error where nothing fits, with the nearest change that does; `clock`: seconds of each pass.

Everything below (search, plans, inter_op, …) may be imported here; baselines, questions, figures and the command line
stand above.
"""
