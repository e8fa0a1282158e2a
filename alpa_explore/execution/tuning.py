"""Time limits and sizes of task execution."""

AUTO_STAY_SECONDS = 2.0
"""With "auto", tasks run in this process for at least so long before worker processes are started: work that is over by
then gains nothing from them, for they need as long to start."""
AUTO_LEFT_SECONDS = 12.0
"""With "auto", worker processes are started when the tasks left would take longer than this. Two workers need 1 to 4 s
to start and 9 s of processor time for what they import and build again."""
MOST_THREADS = 2
"""Cores up to which "auto" executes tasks of compiled kernels in threads. They hold the interpreter lock for a third of
their time, so more threads would wait for each other. Llama-3-70B on 8x8:h100: 104 s of two processors with threads,
166 s with two worker processes."""
PREPARING_SECONDS = 1.0
"""When preparing the tasks takes longer, there are probably many, and workers are started meanwhile. Reading a captured
graph from the disk takes a fifth of it."""
KERNELS_SECONDS = 0.15
"""When capturing a model takes longer, kernels are compiled meanwhile."""
COMPILING_SECONDS = 120.0
"""Time limit for the process that compiles them, which takes 5 to 9 s."""
KERNEL_POLL_SECONDS = 0.01
"""How often its end is looked for."""

CONNECT_SECONDS = 10
"""Time limit for connecting to a scheduler, and for all workers of a local cluster to start. TCP repeats a lost packet
after 1, 3 and 7 s: after three in a row nobody is there."""
WORKERS_SECONDS = 60
"""Time limit for a first worker, and for another one when all have gone: a worker reads this package and numba, perhaps
from a network file system."""
LOOK_SECONDS = 0.1
"""How often a wait for results looks for a cancellation and for workers that died."""
BATCHES_PER_WORKER = 8
"""Batches that a worker gets, so that no worker waits long for the last batch of another."""

POLL_SECONDS = 0.05
"""How often the process of a local worker is looked at."""
STOP_SECONDS = 1.0
"""How long a local worker may take to end before it is killed; it has nothing to save."""
MAX_RESTARTS = 8
"""Restarts of one local worker. The scheduler gives up a task that has killed four workers, and an environment may be
broken."""

RESERVED_BYTES = 256 * 2**20
"""Memory of the machine that planning leaves free: with less of it a desktop begins to swap."""
