"""The arguments of commands, and what several of them ask: the model, a plan file, the cluster, the software, …"""

from __future__ import annotations

import argparse
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from alpa_explore.errors import OptionError

if TYPE_CHECKING:
    from alpa_explore.cluster import Cluster
    from alpa_explore.models.catalog import CatalogEntry


class Arguments:
    """The arguments of a command, or of a group of them, each as a line that reads as in its --help."""

    def __init__(self, parser: Any) -> None:
        """`parser`: of argparse, or one of its groups."""
        self.parser = parser

    def __call__(self, line: str, kind: Any = None, *, several: bool = False, **more: Any) -> None:
        """Add 'NAMES METAVAR  words', as in '-o --output FILE  write the plan file'; without METAVAR it is a flag.

        `kind` makes a value of its text; of `choices` any case is taken. Where it may be given `several` times the
        default is an empty list. `more` are words of argparse.
        """
        head, _, words = line.partition("  ")
        names = [name for name in head.split() if name.startswith("-")] or head.split()[:1]
        metavar = head.removeprefix(" ".join(names)).strip()
        if several:
            more = {"action": "append", "default": [], **more}
        if "choices" in more:
            more["type"] = str.lower
        elif not metavar and "action" not in more:
            more["action"] = "store_true"
        elif metavar:
            more |= {"metavar": metavar, "type": kind}
        self.parser.add_argument(*names, help=words, **more)

    def yes_or_no(self, line: str) -> None:
        """Add a flag with an opposite, --no-…; None where neither is given."""
        self(line, action=argparse.BooleanOptionalAction, default=None)

    def group(self, title: str) -> Arguments:
        """A group with a title of its own."""
        return Arguments(self.parser.add_argument_group(title))


def add_plan_file(argument: Arguments, metavar: str = "PLAN", **more: Any) -> None:
    """Add the plan file that a command reads."""
    argument(f"file {metavar}  a file that `alpa-explore plan -o` wrote", **more)


def add_figure(argument: Arguments) -> None:
    """Add --html, of a command with one figure, and --json."""
    argument("--html FILE  write the figure as one self-contained page")
    argument("--json  print JSON")


def add_model(argument: Arguments) -> None:
    """Add MODEL, --hf and --sequence to the parser of a command."""
    argument(
        "model MODEL  a name that `alpa-explore models` lists, or the path of a Hugging Face config.json", nargs="?"
    )
    argument("--hf CONFIG  a Hugging Face config.json in place of MODEL; nothing is downloaded (needs the extra `hf`)")
    argument("--sequence S  tokens of a sample (default: that of the model, 4096 for a config); also as MODEL@S", int)


def chosen_model(options: argparse.Namespace) -> CatalogEntry:
    """The entry of the model that the options name. OptionError unless they name one; raises as `catalog.entry`."""
    from alpa_explore.models.catalog import entry

    if (options.model is None) == (options.hf is None):
        raise OptionError(
            "A command takes one model",
            found="MODEL and --hf" if options.model is not None else "neither MODEL nor --hf",
            remedy="Give a name that `alpa-explore models` lists, or --hf with the path of a config.json.",
        )
    if options.hf is not None and not options.hf.endswith(".json"):
        raise OptionError("A config is a .json file", found=repr(options.hf), remedy="Give the path of a config.json.")
    return entry(options.hf or options.model, options.sequence)


def add_cluster(argument: Arguments) -> None:
    """Add --cluster."""
    argument(
        "--cluster NxM:DEVICE  the cluster, as in 2x8:a100 or 2x8:a100@fsdp, or a JSON or TOML file", required=True
    )


def add_hosts(argument: Arguments) -> None:
    """Add what says which hosts of a Dask scheduler are planned for."""
    argument("--hosts H1,H2  only these attached hosts, by name or address (default: all)")
    argument("--devices-per-node M  devices of a host to plan for (default: most of them)", int)
    argument("--allow-remote  allow a scheduler outside this machine and private networks")


def add_layering(argument: Arguments) -> None:
    """Add --layers and --delta."""
    argument("--layers L  number of layers of operators (default: the paper's)", int)
    argument(
        "--delta X  FLOP tolerance: fraction by which a layer may exceed the mean FLOPs (default: 0.5)",
        float,
        default=0.5,
    )


def add_allow_import(argument: Arguments, of: str = "the plan file") -> None:
    """Add --allow-import."""
    argument(f"--allow-import  allow a recipe package.module:function of {of}, which runs that code")


def add_question(argument: Arguments) -> None:
    """Add --software, --global-batch and --precision."""
    argument(
        "--software NAME  the framework that runs the model: megatron, nanotron, fsdp, compiled, eager, alpa (the "
        "paper's ideal setting), … (default: that of the device); also as 2x8:a100@fsdp"
    )
    argument("--global-batch N  samples of an iteration (default: the model's)", int)
    argument(
        "--precision NAME  dtype of weights and activations: bf16, fp16 or fp32 (default: the model's); fp8, "
        "fp8-current, mxfp8 or nvfp4: bf16, with linear layers and experts priced in this precision, and the casts "
        "that they need"
    )


def add_states(argument: Arguments) -> None:
    """Add --optimizer-states, which `chosen_cluster` reads."""
    argument(
        "--optimizer-states  what the optimizer keeps: float32 moments and a master copy of 16-bit weights, bfloat16 "
        "moments or 8-bit ones without a master copy (default: float32)",
        choices=("float32", "bfloat16", "8-bit"),
    )


class _NoMicrobatches(argparse.Action):
    """-B of commands whose layouts have a number of microbatches each."""

    def __call__(self, parser: argparse.ArgumentParser, _options: argparse.Namespace, values: Any, *_: Any) -> None:
        parser.error(
            f"-B {values}: each layout has its own number of microbatches, samples of an iteration / (samples of a "
            "microbatch × DP); give the samples of an iteration with --global-batch N"
        )


def refuse_microbatches(argument: Arguments) -> None:
    """Let -B, which `plan` takes, be refused with what to give in its place."""
    argument.parser.add_argument("-B", "--num-microbatches", action=_NoMicrobatches, help=argparse.SUPPRESS)


def chosen_cluster(options: argparse.Namespace, attached: Cluster | None = None, **changes: Any) -> Cluster:
    """The cluster that the options name, or the attached one, in their software, states and precision, with changes.
    ClusterError, OptionError."""
    from alpa_explore.cluster import Cluster

    if options.software is not None:
        changes["software"] = options.software
    cluster = Cluster.parse(options.cluster, **changes) if attached is None else attached.with_changes(**changes)
    if options.optimizer_states is not None:
        cluster = cluster.with_changes(software=replace(cluster.software, states=options.optimizer_states))
    return cluster.in_precision(options.precision)
