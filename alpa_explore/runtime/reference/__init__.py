"""What a run is compared with.

    one_process   the captured graph, run in one process, step by step; how errors are measured, and how large rounding
                  errors are
    plain_module  the user's module in plain PyTorch, beside the captured graph

They import `programs`, `tracing` and `runtime.training`, and start no process.
"""
