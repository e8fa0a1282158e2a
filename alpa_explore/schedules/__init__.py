"""Pipeline schedules: the order of tasks on each submesh, and the timeline that results from their durations.

In the order to read them:

    task          a schedule as a table of tasks (action, stage, microbatch); what a task waits for
    orders/       one family a file: GPipe, 1F1B, interleaved 1F1B, zero bubble, V shapes, DualPipe
    simulator/    checks a schedule, runs it on given durations, and reads times, memory and traces from the result
    catalog       the schedules by name
    closed_form   the formula of the iteration time of each schedule, and when it is exact
    iteration     what an iteration takes, of any number of microbatches
    csv_file      schedules in the CSV format of torch.distributed.pipelining

To add a schedule: a function in `orders/` that returns `schedule_of(name, orders, B)`; its name in `catalog`; its
formula in `closed_form` where there is one. The tests run every name of the catalogue against a second simulator and
its formula. This package imports `errors` and `numerics`; durations come from its callers.

Concepts that others use: Action, Links, MemoryCurve, Schedule, StageTimes, Task, Timeline.
"""
