"""Sizes and time limits of attaching. Set by hand unless a reason is given."""

END_SECONDS = 5.0
"""Time limit for the end of what was started here."""
DESCRIBE_SECONDS = 60.0
"""Time limit for a worker to describe its host: it imports torch for that, from a network file system perhaps."""
LINK_SECONDS = 3.0
"""Time limit for a connection between two hosts. Where a firewall drops packets nothing comes back."""
STALL_SECONDS = 5.0
"""A transfer that makes no progress for so long has failed."""
LISTEN_SECONDS = 20.0
"""How long a worker listens for a transfer."""

SIZES = (2**10, 2**12, 2**14, 2**16, 2**18, 2**20, 2**22, 2**25)
"""Bytes of the messages, 1 KiB to 32 MiB."""
LONGEST_SECONDS = 0.25
"""A link's curve ends with the first message that takes longer: at 100 Mbit/s that of 4 MiB. A token bucket, which lets
some 10 KiB pass at full speed, changes such a message by less than 1 %."""
REPEATS = 5
"""Transfers of a message size, of which the median counts; fewer where they take long."""
ROUND_TRIPS = 20
"""Round trips of one byte, of which the median is twice the latency."""
CHUNK_BYTES = 2**20
"""The receiver's buffer."""

UNLIKE_LINKS = 1.5
"""Links between hosts of which the fastest is so much faster than the slowest are said to differ."""
CALIBRATE_SECONDS = 900.0
"""Time limit for calibrating on a worker."""
KERNEL_SECONDS = 120.0
"""Time limit for one kernel on a worker, which imports torch before the first."""
START_SECONDS = 60.0
"""Time limit for workers started by SSH or Slurm."""
