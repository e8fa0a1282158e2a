"""The command line: `alpa-explore COMMAND …`, one file per command.

Results go to stdout, progress and messages to stderr. Exit codes: 0 done, 1 no plan fits, 2 bad input, 130 stopped by
Ctrl-C. Every command has a text `COMMAND`, its --help as `options` reads it, perhaps an `EPILOG`, and `run(options)`,
which returns the exit code. Heavy packages (torch above all) are imported in `run`, after everything that can be wrong
with the input has been checked.

    output, progress_line    what all commands print with
    options                  the texts of commands as parsers; arguments that several commands have
    models, clusters, validation          what is built in: catalogue, device presets, measured runs
    planning/                plan, show, simulate, export, report, baselines, layouts, scale, predict
    solve, compare_solvers, coverage      the sharding problem of a stage
    running/                 program, launch, verify, compare_run, logs, calibrate, profile, nodes
    course                   lists the lessons, writes the website
    lab, app                 open JupyterLab on the tour, or the explorer alone; located by name, never imported

The rooms do not import each other. Nothing imports this package.
"""

import argparse
import atexit
import errno
import gc
import os
import signal
import sys
import traceback
from collections.abc import Sequence
from difflib import get_close_matches
from typing import Any, NoReturn

from alpa_explore import __version__
from alpa_explore.cli import app, clusters, compare_solvers, course, coverage, lab, models, solve, validation
from alpa_explore.cli.options import add_command
from alpa_explore.cli.output import complain
from alpa_explore.cli.planning import baselines, export, layouts, plan, predict, report, scale, show, simulate
from alpa_explore.cli.running import calibrate, compare_run, launch, logs, nodes, profile, program, verify
from alpa_explore.errors import AlpaExploreError
from alpa_explore.units import printable

INTERRUPTED = 130
FAULT = 70
"""Exit code for a bug of alpa-explore (EX_SOFTWARE of sysexits.h), never for bad input."""
_NO_ROOM = frozenset((errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO))
"""Errors of a stdout that is a full disk."""
_OF_PLANS = (plan, show, simulate, export, report)
_OF_RUNS = (program, launch, verify, compare_run, logs)
_OF_LAYOUTS = (baselines, layouts, scale, predict)
_OF_PROBLEMS = (coverage, solve, compare_solvers)
_OF_DEVICES = (models, clusters, validation, nodes, calibrate, profile)
_COMMANDS = (*_OF_PLANS, *_OF_RUNS, *_OF_LAYOUTS, *_OF_PROBLEMS, *_OF_DEVICES, course, lab, app)


class _Parser(argparse.ArgumentParser):
    def __init__(self, **words: Any) -> None:
        if words.get("epilog"):
            words["formatter_class"] = argparse.RawDescriptionHelpFormatter  # examples stay as they are written
        super().__init__(**words, allow_abbrev=False)

    def parse_known_args(self, *given: Any, **named: Any) -> Any:
        """Of a command: what it does not know is its error, not that of `alpa-explore`."""
        options, unknown = super().parse_known_args(*given, **named)
        if unknown:
            near = get_close_matches(unknown[0], [name for a in self._actions for name in a.option_strings], 1)
            meant = f" (did you mean {near[0]}?)" if near else ""
            self.error(f"unrecognized arguments: {' '.join(unknown)}{meant}")
        return options, unknown

    def error(self, message: str) -> NoReturn:
        """Report bad input in one line that refers to --help, instead of the whole usage."""
        complain(f"{message}. See `{self.prog} --help`.")
        self.exit(2)


def _forget_stdout() -> None:
    """What is left to write goes nowhere: Python would write it, and fail again, at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def parser() -> argparse.ArgumentParser:
    """The parser with all commands."""
    return _parsers()[0]


def commands() -> dict[str, argparse.ArgumentParser]:
    """The parser of each command, in the order of `alpa-explore --help`."""
    return _parsers()[1]


def _parsers() -> tuple[argparse.ArgumentParser, dict[str, argparse.ArgumentParser]]:
    root = _Parser(prog="alpa-explore", description="Plan model-parallel training, and see every decision.")
    of_commands: dict[str, argparse.ArgumentParser] = {}
    root.add_argument("--version", action="version", version=f"alpa-explore {__version__}")
    added = root.add_subparsers(metavar="COMMAND", required=True, dest="command")

    for command in _COMMANDS:
        one = add_command(added, command.COMMAND, getattr(command, "EPILOG", None))
        one.set_defaults(run=command.run, commands=of_commands)
        of_commands[one.prog.rpartition(" ")[2]] = one
    return root, of_commands


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; `arguments` are by default those of the process."""
    for stream in (sys.stdout, sys.stderr):
        if reconfigure := getattr(stream, "reconfigure", None):
            reconfigure(errors="replace")  # without Unicode, print '?' instead of failing
    options = parser().parse_args(arguments)
    # A plan has hundreds of thousands of long-lived values; collecting garbage among them takes a tenth of the time.
    gc.set_threshold(200_000, 20, 20)
    # Skip the several collections at the end of the process, too.
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
    except BrokenPipeError:  # the reader has closed the pipe (`| head`); Python would report it again at exit
        _forget_stdout()
        return 128 + signal.SIGPIPE
    except Exception as fault:
        if isinstance(fault, OSError) and fault.errno in _NO_ROOM and fault.filename is None:
            _forget_stdout()
            complain(
                f"The output cannot be written: {os.strerror(fault.errno)}. Make room where it goes, and run again."
            )
            return 1
        traceback.print_exc()
        complain("this is a bug of alpa-explore, not of your input: please report it with the lines above")
        return FAULT
