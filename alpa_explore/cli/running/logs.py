"""`alpa-explore logs RUN`: what the ranks of a run print, in one view."""

import argparse
import sys
import time
from pathlib import Path

from alpa_explore.units import printable

COMMAND = """logs  what the ranks of a run print
    Print the logs of the ranks of a run, rank by rank, each line with its rank and host; with --follow also new lines
    as they come, until all ranks have ended.
folder RUN  the folder of a run that `alpa-explore launch` made
--rank N (int, several)  only this rank; may be given several times
--follow -f  go on with new lines until the run is over"""

_POLL_SECONDS = 0.3


def run(options: argparse.Namespace) -> int:
    """Print the lines."""
    from alpa_explore.runtime.reports import LogReader

    reader = LogReader(Path(options.folder), options.rank)
    while True:
        over = reader.over() or not options.follow  # before the lines are read: what they are then is all
        for line in reader(last=over):
            print(f"{line.source} | {printable(line.text)}")
        sys.stdout.flush()
        if over:
            return 0
        time.sleep(_POLL_SECONDS)
