"""The processes of a run.

Read in this order:

    transport    collectives, sends and receives by torch.distributed; messages are received ahead of their use
    times        what tasks, messages and collectives take, reported while the rank trains
    checkpoint   save the trained weights, one box per rank
    worker       one rank: read the job, join the others, run the iterations, report and measure
    agent        the process that starts the ranks of a machine, watches them, and ends all when one fails
    template     a process that has imported torch, and forks the agents of one session

An agent ends its ranks when a rank fails, hangs or makes no progress, and when the program that launched the run is
gone. This room must not import `runtime.targets` or `runtime.launch`.
"""
