"""The inter-operator pass (Alpa, arXiv 2201.12023, §5.1): layers are grouped into stages, and each gets a submesh.

In the order to read them:

- `options`: what a user may ask of the pipeline beyond the paper (`PipelineOptions`), checked, and in words; the
  schedules that are compared where none is named.
- `schedule_terms`: a schedule as the planner models it: its bubble, and the microbatches that a stage holds.
- `stage_table`: the public verb, `best_pipeline(costs, …) -> PipelineResult`: it evaluates the stage costs at one B,
  writes the options into the latency table, and runs the DP.
- `pipeline_dp`: the DP, `pipeline_dp(table, …) -> PipelineResult`: Eq. 2 minimised over all t_max.
- `recurrence`, `kernels`: Eq. 3 for one t_max, over arrays; its inner loops compiled.
- `t_max_sweep`: the search over t_max; bounds rule out most candidates without an evaluation.
- `result`: the stages, the figures of Eq. 2, and what became of every t_max candidate.

`pipeline_dp` knows nothing of models, options or memory: all of that is in its table. Two inputs generalise the paper
and keep the search exact: a schedule whose bubble is of another size, and seconds that a stage adds once an iteration.

Eq. 2 is the objective. T is what an iteration takes (`plans.iteration_time`): the partitions near the best by Eq. 2 are
compared by it (`plans.assemble`); in the paper's mode T is Eq. 2.

To add an option: a field of `PipelineOptions`, with its form, check and phrase in `options`;
its lines in `stage_table` (for a schedule, in `schedule_terms`); the schema of the plan file; a command-line flag; a
case against brute force in tests/inter_op/test_options.py.

Stage costs come from `pricing`; this package imports neither solvers nor anything that plans, draws or runs.

Concepts that others use: PipelineOptions, PipelineResult, ScheduleTerms, Stage, SweepPoint.
"""
