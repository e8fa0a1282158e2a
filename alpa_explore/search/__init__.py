"""The search: which stages are priced, how exactly, and when the best pipeline is proven.

Read in this order:

- `resolve`: the loop: find the best pipeline by the lower bounds, price its stages, repeat.
- `pipeline_query`: the cluster, options and B of the pipeline that is sought, and its calls of the pipeline DP;
  `stage_profile`: the result.
- `profile_stages`: the public verbs: for a new plan, for the stages alone that its pipelines want (another delta, the
  bounds of another B), whether any pipeline fits.
- `stage_pricing`: the stage costs that `resolve` asks for: which problems get choices first, and what is searched for
  where a stage stays open; `open_questions`: which search would close a gap.
- `library`: the price books of all problems: read from the cache, sharpened by tasks, written back.
- `stages/`: which stages are feasible; their versions; keys of equal problems; from books to candidates, and back to
  choices. `bounds/`: lower bounds without a solve.
- `tuning`: limits.

Between a `StageProblem` and a `Plan` there are these concepts:

    CellProblem     a cell of the table (layer range, submesh) on one logical mesh in one version, and its problem
    Task            one search for choices, for one problem or for all on a mesh
    PriceBook       what is known of a problem, at every B and memory: `StageChoice`s, bounds, what was `Tried`
    Library         the books of all problems
    Reading         a book at one B with one memory: what is proven
    Screened        what bounds the choices of a problem that was not searched to the end
    OpenQuestion    a problem that may have a better choice, and the search that would find it
    StagePricing    the stage costs so far, and the next searches
    StageCosts      the table: of every cell its `StageCandidate`s and bounds
    PipelineQuery   what the best pipeline is sought for
    StageProfile    the result: costs, and the choices behind them

It calls `pricing` for the costs of a stage and `inter_op.stage_table` for the best pipeline. Plans and the planner
stand above it.

Concepts that others use: LowerBounds, PipelineQuery, SolveContext, StagePricing, StageProfile.
"""
