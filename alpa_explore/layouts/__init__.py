"""Predict the iteration times of Megatron layouts of GPT (tensor × data × pipeline parallelism).

Read in this order:

    layout      a GPT, a batch and its parallel layout
    machine     a device, its links, and fitted figures of the software
    iteration   the time of an iteration, in parts
    memory      the bytes of the fullest device
    table       read a CSV table of layouts
    tuning      weights of the fit
    fit         fit the software figures to measured iterations
    score       errors and rank correlation of predictions

This is a closed-form model of hand-made layouts, which is separate from the planner's cost model and needs no graph.
This package must import only `cluster`, `numerics` and `errors`.
"""
