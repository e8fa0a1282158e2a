"""Time kernels, the host and links on the attached devices; every function runs on all ranks alike.

Read in this order:

    identity        what the device and its software call themselves
    clock           the seconds of one call, by the device's own clock on a GPU
    kernels         matrix products over m, n, k and dtype, fused attention, a memory-bound kernel
    host_time       what the host needs to issue an operator, its backward pass, a module, a collective
    links           collectives and sends over message sizes and numbers of ranks
"""
