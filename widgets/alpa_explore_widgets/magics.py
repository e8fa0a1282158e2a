"""`%load_ext alpa_explore_widgets`: the magics %alpa and %%alpa.

%alpa gpt-350m 2x2:v100 -B 64 --layers 4          the explorer on a catalogue model (or a plan file)

%alpa gpt-tiny --pin addmm_3=S0R --forbid mm=RR   sharding specs that operators must or must not have

%%alpa 1x4:a100 -B 16                             the explorer on the model that the cell defines:
model = nn.Linear(8, 8)                           `model`, `example_inputs` (one microbatch) and, where the model
example_inputs = (torch.empty(4, 8), target)      does not return its loss, `loss`
loss = nn.functional.mse_loss
"""

from __future__ import annotations

import argparse
import shlex
from typing import TYPE_CHECKING, Any, NoReturn

from alpa_explore.errors import OptionError
from alpa_explore.sharding.spec_constraint import mappings, parse_constraints
from alpa_explore_widgets.explorer import Explorer, explore

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

_NAMES = ("model", "example_inputs", "loss")
_UNREADABLE = "The line of the magic could not be parsed"


class _Parser(argparse.ArgumentParser):
    """Raises an OptionError for a wrong line; argparse itself would end the kernel."""

    def error(self, message: str) -> NoReturn:
        raise OptionError(_UNREADABLE, found=message, remedy=f"Usage: {self.format_usage().strip()}")

    def exit(self, status: int = 0, message: str | None = None) -> NoReturn:
        raise OptionError("The magic shows nothing", found=message or "--help", remedy=self.format_usage().strip())


def load(shell: InteractiveShell) -> None:
    """Register the magics."""

    def alpa(line: str, cell: str | None = None) -> Explorer:
        options = parse(line, with_model=cell is None)
        if cell is None:
            return explorer_of(options)
        # Only names that the cell assigns count, so values that the names had before are put aside and restored.
        before = {name: shell.user_ns.pop(name) for name in _NAMES if name in shell.user_ns}
        shell.run_cell(cell).raise_error()
        assigned = {name: shell.user_ns[name] for name in _NAMES if name in shell.user_ns}
        shell.user_ns.update({name: value for name, value in before.items() if name not in assigned})
        return explorer_of(options, assigned)

    shell.magics_manager.register_function(alpa, magic_kind="line_cell", magic_name="alpa")


def parse(line: str, *, with_model: bool) -> argparse.Namespace:
    """The options of a magic line. OptionError for a line that cannot be parsed."""
    magic = "%alpa MODEL" if with_model else "%%alpa"
    parser = _Parser(prog=magic.split()[0], allow_abbrev=False, add_help=False)
    if with_model:
        parser.add_argument("model", help="a name of the catalogue, or a plan file")
    parser.add_argument("cluster", nargs="?", default="1x4:v100")
    parser.add_argument("-B", "--num-microbatches", type=int)
    parser.add_argument("--delta", type=float, default=0.5)
    parser.add_argument("--layers", type=int, dest="num_layers")
    parser.add_argument("--solver", default="auto")
    parser.add_argument("--precision")
    parser.add_argument("--sequence", type=int)
    parser.add_argument("--schedule", default="auto")
    parser.add_argument("--paper", action=argparse.BooleanOptionalAction)
    for option in ("--pin", "--forbid"):
        parser.add_argument(option, action="append", default=[], metavar="NAME=SPEC")
    try:
        words = shlex.split(line)
    except ValueError as error:
        raise OptionError(_UNREADABLE, found=str(error), remedy="Close the quotation.") from error
    return parser.parse_args(words)


def explorer_of(options: argparse.Namespace, assigned: dict[str, Any] | None = None) -> Explorer:
    """The explorer for parsed options and, for a cell, the names that it assigned. OptionError if it assigned no
    model."""
    common = {name: value for name, value in vars(options).items() if name not in ("model", "pin", "forbid")}
    common |= mappings(parse_constraints(options.pin, options.forbid))
    if assigned is None:
        if options.model.endswith(".json"):
            from alpa_explore.plans.plan import load_plan

            return explore(load_plan(options.model))
        return explore(options.model, **common)
    if "model" not in assigned:
        raise OptionError(
            "The cell made no model",
            found=", ".join(assigned) or "none of the names",
            remedy="Assign `model`, and `example_inputs` where it is a module.",
        )
    loss = {"loss": assigned["loss"]} if "loss" in assigned else {}
    return explore(assigned["model"], example_inputs=assigned.get("example_inputs"), **common, **loss)
