"""Where tasks are executed: in this process, in threads, or on Dask workers.

Read in this order:

    tuning          time limits and sizes
    available_memory  an error before the machine swaps
    progress        the progress of a pass; calling, counting and cancelling its tasks
    client          a client of a Dask scheduler; calls of functions on its workers
    hosts           a host as Dask workers on it see it
    local_cluster   worker processes on this machine
    dask_pool       tasks on the workers of a Dask scheduler
    executors       the Executor, which chooses among these

A task is a function and a picklable value; tasks are independent of each other. Cancellation, dead workers and a dead
scheduler are ordinary events with errors of their own. dask is imported only when workers are needed. This package must
import nothing of alpa_explore but `errors`.

Concepts that others use: Executor, Progress, ProgressCallback, TaskCount.
"""
