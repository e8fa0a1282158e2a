"""What a run is compared with.

    rounding      how large the rounding errors of each gradient are
    one_process   the captured graph, run in one process, step by step; how errors are measured
    plain_module  the user's module in plain PyTorch, beside the captured graph

They import `programs`, `tracing` and `runtime.training`, and start no process.
"""
