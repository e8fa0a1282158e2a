"""Other formulations of the sharding problem of a stage, measured against the exact one.

    factor_ilp        an ILP with one option per axis and node, and linear resharding costs; its PuLP model
    independent_ilp   one ILP per mesh axis, as if the other axes did not exist
    comparison        values: StageInstance, SolverRow, Comparison; the rows as plain numbers
    methods           one row per formulation; decisions made axis by axis, made legal and improved by the exact costs
    compare           `compare_solvers`: all formulations on one stage, side by side
    tuning            gaps, rounds and sizes

For teaching and for figures: the planner itself uses `intra_op.solve`. Above `intra_op`; of the planner's packages none
imports it.

Concepts that others use: Comparison, SolverRow, StageInstance.
"""
