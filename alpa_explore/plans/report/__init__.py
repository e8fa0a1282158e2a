"""A plan as text and tables: what the command line prints, and what stands beside the figures.

- `text`: numbers, layer ranges and whole plans as short text, and rows as aligned tables.
- `specs`: sharding specs in words ('S0R': dim 0 over axis 0).
- `parallelism`: what a stage uses its mesh axes for, as values and in words: 'FSDP over axis 0 (8)'.
- `tables`: rows (dicts in SI units) for stages, layers, t_max candidates, stage costs.
- `compare`: how two plans differ in settings, figures and operators; plans that were tried, as rows of what differs,
  and what has no plan.
- `iteration`: the iteration time and the sends beside it, in the same words everywhere.
- `error_bands`: how far to trust predicted figures: '± 9 % (312 runs of Megatron on A100-80GB)'.
- `headline`: the figures at the top of every report; `summary`: the report that `alpa-explore plan` prints, and the
floors of
  physics, which no plan can be below.
- `timeline_tables`: a simulated iteration as rows and a sentence.

Everything here takes a `PlanValue` and returns text, rows or small records; nothing draws, and no units but SI are
kept in rows.
"""
