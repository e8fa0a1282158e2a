"""The command line: `alpa-explore COMMAND …`. One file a command; nothing heavy is imported before it is needed.

Results go to stdout, progress and complaints to stderr. Exit codes: 0 done, 1 no plan fits, 2 bad input, 130 stopped by
Ctrl-C.
"""

from __future__ import annotations

import argparse
import atexit
import gc
import os
import signal
import sys
import traceback
from collections.abc import Sequence
from typing import NoReturn

from alpa_explore import __version__
from alpa_explore.cli.listing import clusters, models
from alpa_explore.cli.opening import app, lab
from alpa_explore.cli.output import complain
from alpa_explore.cli.planning import baselines, plan, predict, show, simulate
from alpa_explore.cli.running import calibrate, compare_run, launch, program, verify
from alpa_explore.cli.solving import compare_solvers, coverage, solve
from alpa_explore.errors import AlpaExploreError
from alpa_explore.plans.printable import printable

INTERRUPTED = 130
FAULT = 70
"""A fault of ours (EX_SOFTWARE of sysexits.h), never of the input."""
_COMMANDS = (
    plan,
    show,
    simulate,
    program,
    launch,
    verify,
    compare_run,
    baselines,
    predict,
    coverage,
    solve,
    compare_solvers,
    models,
    clusters,
    calibrate,
    lab,
    app,
)


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """Bad input is one line and how to learn more, not the whole usage."""
        complain(f"{message}. See `{self.prog} --help`.")
        self.exit(2)


def parser() -> argparse.ArgumentParser:
    """The parser with all commands."""
    found = _Parser(
        prog="alpa-explore", description="Plan model-parallel training, and see every decision.", allow_abbrev=False
    )
    found.add_argument("--version", action="version", version=f"alpa-explore {__version__}")
    commands = found.add_subparsers(metavar="COMMAND", required=True, dest="command")
    for command in _COMMANDS:
        command.add(commands)
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; `arguments` are those of the process unless given. Returns the exit code."""
    for stream in (sys.stdout, sys.stderr):
        if reconfigure := getattr(stream, "reconfigure", None):
            reconfigure(errors="replace")  # a terminal without Unicode shows '?' instead of a traceback
    options = parser().parse_args(arguments)
    # A plan is hundreds of thousands of values that stay: looking for garbage among them takes a tenth of the time.
    gc.set_threshold(200_000, 20, 20)
    # Nor is it looked for again, several times, when the process ends.
    atexit.register(gc.freeze)
    try:
        code: int = options.run(options)
        sys.stdout.flush()
        return code
    except AlpaExploreError as error:
        complain(str(error))
        for line in "\n".join(getattr(error, "__notes__", ())).splitlines():
            print(f"  {printable(line)}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        complain("stopped")
        return INTERRUPTED
    except BrokenPipeError:  # the reader has seen enough (`| head`); Python would complain again at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + signal.SIGPIPE
    except Exception:
        traceback.print_exc()
        complain("this is a fault of alpa-explore, not of your input: please report it with the lines above")
        return FAULT
