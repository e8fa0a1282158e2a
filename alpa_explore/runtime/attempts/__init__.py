"""A run that goes on after a fault: from its last whole checkpoint, on the devices that are left.

    attempt    the attempts of a run, and whether a failure may be followed by another one
    replan     a plan for fewer devices: the same model and global batch

The first attempt is in the folder of the run itself, each later one in a folder of its own there (`attempt-2`): what
still runs on a host that is cut off cannot write into it. `attempts.json` says why they ended.
"""
