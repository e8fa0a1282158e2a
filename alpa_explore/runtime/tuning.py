"""Time limits and sizes of training runs. Set by hand unless a reason is given."""

from __future__ import annotations

from datetime import timedelta

RUN_POLL_SECONDS = 0.1
"""How often the thread that watches a run looks whether its ranks have ended."""
AGENT_POLL_SECONDS = 0.1
"""How often the agent of a machine looks at its ranks and at its standard input."""
STOP_SECONDS = 5.0
"""How long the ranks of a machine may take to end before they are killed."""
PROCESSES_A_CORE = 8
"""Ranks that one CPU core can have; more only wait for each other."""
FULL_BYTES = 2**16
"""A disk with less free space cannot take what ranks report."""

HEARTBEAT_SECONDS = 0.5
"""How often a rank writes what it is doing."""
FROZEN_SECONDS = 8.0
"""A rank whose heartbeat is older than this hangs."""
SETTLE_SECONDS = 0.5
"""How long an agent waits after a first failure: another rank may have failed before, or report the cause."""
MEASURED_STEPS = 100
"""The number of last steps whose task times are kept."""

PENDING_SEND_SECONDS = 1e-3
"""How often a pending NCCL send is polled."""
TORCH_TIMEOUT = timedelta(days=1)
"""Of torch's own watchdog. The agent's is faster and reports more."""

WATCHED_SECONDS = 10.0
"""Dask workers end their ranks when the program that started the run has given no sign of life for so long."""
WATCHED_BEAT_SECONDS = 1.0
"""How often that program gives a sign of life."""
WORKER_GONE_SECONDS = 3.0
"""A Dask worker that the scheduler has not known for so long has died."""

KEPT_CHECKPOINTS = 2
"""The last checkpoints of a run that are kept: where the newest is damaged, one is left."""
REQUEST_SECONDS = 2.0
"""How long a request for a checkpoint may take to reach all ranks, over a channel between hosts."""
ALIGNMENT_BYTES = 64
"""Archives in a checkpoint begin at multiples of this, torch's own alignment within them."""
MAX_INDEX_BYTES = 2**30
"""A larger index of a checkpoint is refused; one of a million boxes has about 200 MB."""
KEEP_SECONDS = 60.0
"""How long the parts of a checkpoint may come after the end of the run, from hosts without a shared folder."""
