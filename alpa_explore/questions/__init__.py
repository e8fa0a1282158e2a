"""Questions about a finished plan: why it takes so long, and what would happen if something were different.

Each module answers one question and can be read alone:

- `explain`: where an iteration's time goes, what each limit costs, and which single changes would help.
- `what_if`: an operator of a stage pinned to a spec or kept from it; and what every other strategy would cost
  (`regrets`, the min-marginals of the stage's sharding problem).
- `frontier`: how much slower a stage becomes with less memory; `pareto`: exactly, where it is small.
- `reprice`: the same plan on devices with other figures, for example after a calibration.
- `better_plan`: the best plan for measured figures, beside the present one.
- `exported`: a plan for another tool, and what its layout takes there by the same prices.
- `microbatches`: T, throughput and memory at every other number of microbatches.

Figures are compared in seconds and bytes of the stage, or as T of Eq. 2. A plan that was read from a file has no
sharding problems behind its stages: `what_if`, `regrets` and `frontier` need `plans.rebuild` first, and say so.
These modules import the planner and what is below it; nothing that draws, runs or prints.

Concepts that others use: BetterPlan, FrontierPoint, Regret, StageFrontier, StageTime.
"""
