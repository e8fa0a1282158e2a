"""From a training graph cut into layers to the sharding problem of one stage on one mesh.

    recomputation   what the backward pass computes again: the names that users type
    segments        the runs of operators that are recomputed together, and what is held then; what kernels of the
                    backward pass compute again
    layered_graph   LayeredGraph: the layer of every operator, what is held, what is recomputed;
                    tables: what the forward pass computes from numbers alone, whole on every device
    stage_graph     StageGraph: the operators of a run of layers, its sources, weights and sinks, and its structure key
    edge            edges of the sharding problem, and figures of pairs of strategies
    stage_problem   StageProblem: nodes and edges of Eq. 1 with seconds and bytes; totals; the memory limit
    build_problem   `build_stage_problem`: the problem of a stage on a mesh
    stage_totals    figures that add up over a choice, and the seconds and bytes that they make
    liveness        when the tensors of a stage are alive: its workspace
    overlap         the part of a collective that is hidden behind computation
    axis_options    a strategy seen as one option per mesh axis, the nearest strategy, and how much is data parallelism
    tuning          limits of stages

A `StageProblem` holds every kind of cost separately; `StageProblem.at` combines them into a `ShardingProblem` for a
number of microbatches and a price of memory. Imports `problem`, and of the packages below `graph`, `sharding` and
`cost`; no solver.
"""
