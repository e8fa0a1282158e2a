"""Commands about the sharding problem of a stage.

    solve             solve a problem from an IOPDDL file
    compare_solvers   solve one stage by each formulation
    coverage          which operators of a model can be sharded

A room of commands must not import another one.
"""
