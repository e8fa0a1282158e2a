"""Which shardings an operator can have: specs, strategies, resharding steps, rules and discovery.

An operator has *splits*: the loop dims that one mesh axis can divide, and what each does to every input and output.
They come from a rule for its kind or, without one, from discovery. Strategies on a mesh of any rank follow from the
splits. Costs are not computed here but in `cost`. In the order to read them:

    spec              a placement for each mesh axis; legal specs; the notation S0R, RS1, S01R+P2; the piece of a tensor
                      that every device holds: when two specs are the same division
    reshard           the collectives that lead from one spec to another
    strategy          splits, what they exchange inside an operator, and the strategies of an operator on a mesh
    rules/            the splits of each operator family
    scans             the splits of a scan, from the rules of the operators in its body
    local/            what one device runs under a strategy: the definition that proofs, interpreter and runtime share
    discovery/        splits of operators without a rule, established by running them (takes torch)
    splits            the splits of an operator: its rule, else what discovery found, which is a pass over the graph;
                      `coverage`: how the operators of a graph are covered
    zigzag            a graph with its sequences in zig-zag order from the inputs on
    spec_constraint   specs that the user pins or forbids

It imports `graph`, `units` and `errors`; only `discovery` imports torch and `tracing`.

Concepts that others use: ConstraintKind, Exchange, KindCoverage, LocalCall, LocalCollective, Reduction, Spec,
SpecConstraint, Split, Step, StepKind, Strategy, Tiling.
"""
