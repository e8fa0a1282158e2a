"""Lower the decisions of a plan to the instructions of every rank.

Read in this order:

    decision     the decisions for one stage: strategies, and specs of sources, weights and gradients
    table        the schedule that a program follows, chosen and checked
    boxes        which box of a tensor a device holds, and how boxes of two meshes intersect
    writer       writes the instructions of one stage for all of its ranks
    liveness     inserts Free instructions after last uses
    lower        the forward, backward and update tasks of all stages
    transforms   classic kinds of parallelism (data, ZeRO, tensor) as decisions for a stage

Nothing is decided here: strategies and resharding steps are those that the planner priced, and `sharding.local` defines
how an operator runs on a shard. This room must not import `programs.execution`.
"""
