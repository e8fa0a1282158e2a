"""Lower the decisions of a plan to the instructions of every rank.

Read in this order:

    decision     the decisions for one stage: strategies, and specs of sources, weights and gradients; the schedule
                 that a program follows, chosen and checked
    writer       writes the instructions of one stage for all of its ranks; which box of a tensor a device holds
    lower        the forward, backward and update tasks of all stages; values are freed after their last use

Nothing is decided here. A node of the sharding problem becomes the `LocalCall` of `sharding.local` for the rank's place
in the mesh, which is also what the proofs of the sharding rules run; an edge becomes the priced sequence of
collectives. A tensor that crosses stages is sent as intersections of boxes, each byte once, and an all-gather makes the
replicas. The stages are those that the schedule runs (`plans.schedule_stages`): the plan's, or, interleaved, ranges of
layers that share a submesh, with choices of their own. This room must not import `programs.execution`.
"""
