"""The plan: layers, stages on submeshes, a strategy for every operator, and what all of it is predicted to take.

Modules and rooms, lowest first; each imports only what stands above it in this list:

- `records`: the parts of a plan, one dataclass each; `phrases`: how stages,
  submeshes and layers are named.
- `describe`: a solved stage as records: strategy, specs and collectives of every operator.
- `stage_details`: the sharding problems and choices behind the stages of a plan that was made in this process.
- `value`: `PlanValue`, a plan as a frozen value, with the figures that follow from its fields.
- `planned_stage`: the record of a stage, from its candidate (`describe` adds the operators).
- `schedule_stages`, `timeline`: the stages that a schedule runs, and one iteration simulated.
- `iteration_time`: what an iteration takes, T, and its parts; Eq. 2 in the paper's mode.
- `report/`: a plan as tables and sentences, and two plans compared.
- `file/` and `export/`: the plan file; the plan as PyTorch code. They do not import each other.
- `plan`: `Plan`, the value that users hold, whose methods forward to the modules above; and `load_plan`.
- `assemble`: a plan from the results of the passes, of several schedules with the fastest; `rebuild`: the problems
  behind a plan that was read from a file.

A plan is never changed in place. Nothing here plans, draws, or runs anything: no `planner`, `figures` or `runtime`.

Concepts that others use: CutOtherwise, Exported, Found, HeadlineFigure, ModelSummary, NoPlan, Plan, PlanComparison,
PlanDegrees, PlanLayer, PlanOperator, PlanOptions, PlanStage, PlanValue, PlannedOperators, PricedAgain, Row,
StageDegrees, TriedMicrobatches.
"""
