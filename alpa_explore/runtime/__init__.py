"""Train with a plan on real devices: one process per device, started, watched, measured and verified.

Read in this order:

    checkpoints/  write the state of a run, and read it under another plan
    job        the folder of a run, and the job of every rank: its instructions, data and the user's own modules
    folder     where the folders of runs are, the form of the files in them, words of the launcher to the ranks
    training   initial weights and microbatches of a run
    tuning     time limits and sizes
    reports    what running ranks report and print, as files in the folder of the run
    measured   measured and predicted times, joined by task
    drift      what runs otherwise than predicted, while it runs
    ranks/     the processes: one rank, its transport and checkpoint, the agent of a machine
    targets/   where ranks are started: this machine, a script, Dask workers
    attempts   go on after a fault: from the last checkpoint, on what is left, by a plan for fewer devices
    run        the handle of a run, which watches it
    launch     check a request, write the folder, start the ranks
    reference/ what a run is compared with: one process, and the module in plain PyTorch
    verify     compare a run, or an interpreted program, with one process

A run is a training run on devices. Ranks are processes that communicate by torch.distributed; the program that launched
them communicates with them only by files in the folder of the run, so that all targets work alike. `targets` starts
`ranks` by command line and does not import it. This package must not import figures, the command line or the front end.

Concepts that others use: Drift, LogReader, Measured, MeasuredTask, Microbatches, Retry, Run, StepReport.
"""
