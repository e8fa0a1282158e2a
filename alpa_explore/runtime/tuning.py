"""Time limits and sizes of training runs. Set by hand unless a reason is given."""

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
CLOCK_ROUNDS = 9
"""Questions after which the clocks of two ranks are compared: one answer is some milliseconds late where processes
share cores."""
TIMED_STEPS = 5
"""Of so many steps the messages and collectives of one are timed, one by one: what that costs is spread over them."""
TIMED_SAMPLES = 3
"""The last timed steps that ranks report: their median hides one that something else has delayed."""
RECENT_STEPS = 10
"""Steps whose median is a task's present time: a change shows after half of them."""
TIMES_SECONDS = 1.0
"""Ranks report running times no more often: the file has some kilobytes, and is sent to the launcher anew."""
DRIFT = 1.25
"""A time that differs from the predicted by this factor is drift. Predictions of compute are 10 to 20 % off."""
DRIFT_SHARE = 0.05
"""What takes less than this share of an iteration, predicted and measured, is not worth a word."""
DRIFT_PULL = 0.1
"""Weight of the common ratio when latency and bandwidth of a link are fitted to what was measured; messages count 1."""

PENDING_SEND_SECONDS = 1e-3
"""How often a pending NCCL send is polled."""
TORCH_TIMEOUT = timedelta(days=1)
"""Of torch's own watchdog. The agent's is faster and reports more."""

WATCHED_SECONDS = 8.0
"""Dask workers end their ranks when the program that started the run has given no sign of life for so long."""
EXCHANGE_SECONDS = 0.25
"""How often the launcher asks each Dask worker for what is new."""
ALIVE_SECONDS = 1.0
"""How often the launcher asks each Dask worker whether it is there, while a large answer may be under way."""
PIECE_BYTES = 2**16
"""What a worker and the launcher send each other at first, and at least: two seconds at 256 kbit/s."""
SMALL_BYTES = 2**13
"""How long so little takes is the time of an exchange itself, which is long on busy hosts, whatever the link."""
MAX_PIECE_BYTES = 2**23
"""What they send at most: more at once is not faster."""
PIECE_SECONDS = 1.0
"""What is sent at once grows while the link carries it in less, and shrinks when it takes longer."""
PATIENT_SECONDS = 300.0
"""How long what is sent at once may take when a link has become slow: 8 MiB at 256 kbit/s."""
WORKER_LOST_SECONDS = 8.0
"""A Dask worker that has not answered for so long is lost: its link is cut, or its host. Ends a run within 15 s."""
ASK_SECONDS = 10.0
"""How long a Dask worker may take for an answer. It says of an unreachable host that it is, before anything starts."""
ASK_LEFT_SECONDS = 5.0
"""How long it may take where the hosts that are left are looked for, of which some are lost: a run waits for that."""
LOST_SECONDS = 0.5
"""How long one that is known to be lost may take, while others are asked: its link may work again."""
HOSTS_BACK_SECONDS = 30.0
"""How often a run that has lost hosts looks whether all answer again. Costs a question to every worker."""
DESCRIBE_SECONDS = 60.0
"""How long it may take to describe its host, for which it imports this package, and torch where there are GPUs."""
SUSPECT_SECONDS = 4.0
"""Links between hosts are tried when no rank has finished an instruction for so long. Costs a connection a pair."""
REACH_SECONDS = 4.0
"""How long a connection between two hosts may take; TCP repeats a lost packet after 1 and 3 s."""
LISTEN_BACKLOG = 512
"""Connections that may wait until the first rank takes them: one of each rank."""
MEET_SECONDS = 60.0
"""How long ranks wait for each other at the start. Hosts start their agents at once, but read torch from slow disks."""
WORKER_GONE_SECONDS = 3.0
"""A Dask worker that the scheduler has not known for so long has died."""

KEPT_CHECKPOINTS = 2
"""The last checkpoints of a run that are kept: where the newest is damaged, one is left."""
WHOLE_POLL_SECONDS = 0.02
"""How often a rank that waits for a whole checkpoint looks whether it is."""
REQUEST_SECONDS = 2.0
"""How long a request for a checkpoint may take to reach all ranks, over a channel between hosts."""
ALIGNMENT_BYTES = 64
"""Archives in a checkpoint begin at multiples of this, torch's own alignment within them."""
MAX_INDEX_BYTES = 2**30
"""A larger index of a checkpoint is refused; one of a million boxes has about 200 MB."""
MAX_REPORT_BYTES = 2**28
"""A larger description or report of a run is refused; the measured times of a rank have some megabytes."""
MAX_BOXES = 2**14
"""Boxes of one tensor in a checkpoint: one of each rank, of 16,384. Comparing them pair by pair takes a second."""
KEEP_SECONDS = 60.0
"""How long the parts of a checkpoint may come after the end of the run, from hosts without a shared folder."""

SCRIPT_PORT = 29400
"""Where the machines of a torchrun script meet: torchrun's own default."""
SLURM_PORTS = range(20000, 32000)
"""A Slurm job takes one of these by its number. Linux gives programs ports from 32768 on."""
KUBERNETES_PORT = 23456
"""Where the pods of a PyTorchJob meet: the training operator's own default."""
