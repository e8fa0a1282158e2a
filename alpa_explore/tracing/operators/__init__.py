"""From the nodes of a joint graph to the operators of a TrainingGraph.

    drafts     Draft, an operator whose tensors have no numbers yet; Drafts, all of a graph, in a
               canonical form, without calls that compute nothing
    drafting   `draft`: nodes -> drafts
    phases     `assign_phases`: forward, backward or update, and the forward operator of each backward one
    sharing    `share`: equal views merged, pending sums with several readers completed once
    assemble   `assemble`: numbered tensors and operators, FLOPs, bytes, update operators

They import `tracing.joint_graph`, `tracing.inputs`, `tracing.aten`, `tracing.optimizers` and `graph`.
"""
