"""Time the kernels that a plan and its search ask for, on the attached device.

Read in this order:

    wanted    the distinct kernels: those of the plan, then those of all strategies on all logical meshes; steps of the
              optimizer, too
    timing    one kernel on the device: seconds, spread and host seconds
    profile   the verb: time what matters first, plan anew with what was found, and keep it in a store

A kernel is what a device runs for one operator under one strategy (`sharding.local`); the runtime runs the same.
"""
