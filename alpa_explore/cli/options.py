"""The arguments of commands, each command a text that reads as its --help; and what several of them ask: the model, ….

plan  plan a model on a cluster             the command, and its line in `alpa-explore --help`
    Plan the training of a model.           its description; an empty line begins another line of it
file PLAN  a file that …                    an argument; further lines are indented
-o --output FILE  write the plan file       an option; without METAVAR it is a flag
--cut LAYER (int, several)  start a …       in parentheses its type (`TYPES`); `several`: a list of all that are
--delta X (float, = 0.5)  tolerance …       given; `many` words, or one that is `optional`; `required`; its default;
--to (megatron|nemo, required)  the tool    its choices, in any case; `yes or no`: a flag with an opposite, --no-…;
--no-remat (exclusive, remat = none)  …     what a flag sets; `exclusive`: one of these may be given
beyond the paper:                           a group with a title of its own, up to `options:`
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from alpa_explore.errors import OptionError

if TYPE_CHECKING:
    from alpa_explore.cluster import Cluster
    from alpa_explore.models.catalog import CatalogEntry

MODEL = """\
model MODEL (optional)  a name that `alpa-explore models` lists, or the path of a Hugging Face config.json
--hf CONFIG  a Hugging Face config.json in place of MODEL; nothing is downloaded (needs the extra `hf`)
--sequence S (int)  tokens of a sample (default: that of the model, 4096 for a config); also as MODEL@S"""
CLUSTER = "--cluster NxM:DEVICE (required)  the cluster, as in 2x8:a100 or 2x8:a100@fsdp, or a JSON or TOML file"
QUESTION = """\
--software NAME  the framework that runs the model: megatron, nanotron, fsdp, compiled, eager, alpa (the paper's ideal
    setting), … (default: that of the device); also as 2x8:a100@fsdp
--global-batch N (int)  samples of an iteration (default: the model's)
--precision NAME  dtype of weights and activations: bf16, fp16 or fp32 (default: the model's); fp8, fp8-current, mxfp8
    or nvfp4: bf16, with linear layers and experts priced in this precision, and the casts that they need"""
STATES = """\
--optimizer-states (float32|bfloat16|8-bit)  what the optimizer keeps: float32 moments and a master copy of 16-bit
    weights, bfloat16 moments or 8-bit ones without a master copy (default: float32)"""
LAYERING = """\
--layers L (int)  number of layers of operators (default: the paper's)
--delta X (float, = 0.5)  FLOP tolerance: fraction by which a layer may exceed the mean FLOPs (default: 0.5)"""
NO_MICROBATCHES = """\
-B --num-microbatches (refused)  each layout has its own number of microbatches, samples of an iteration / (samples of
    a microbatch × DP); give the samples of an iteration with --global-batch N"""
HOSTS = """\
--hosts H1,H2  only these attached hosts, by name or address (default: all)
--devices-per-node M (int)  devices of a host to plan for (default: most of them)
--allow-remote  allow a scheduler outside this machine and private networks"""
PLAN_FILE = "file PLAN  a file that `alpa-explore plan -o` wrote"
ALLOW_IMPORT = "--allow-import  allow a recipe package.module:function of the plan file, which runs that code"
FIGURE = """\
--html FILE  write the figure as one self-contained page
--json  print JSON"""


def _count(text: str) -> int | str:
    try:
        return "auto" if text.strip().lower() == "auto" else int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"neither a number nor 'auto': {text!r}") from None


TYPES: dict[str, Any] = {"int": int, "float": float, "count": _count}
_SAID: dict[str, dict[str, Any]] = {
    "several": {"action": "append", "default": []},
    "many": {"nargs": "+"},
    "optional": {"nargs": "?"},
    "required": {"required": True},
    "yes or no": {"action": argparse.BooleanOptionalAction, "default": None},
    **{name: {"type": kind} for name, kind in TYPES.items()},
}


class _Refused(argparse.Action):
    """An option of other commands; its words say what to give in its place."""

    def __init__(self, words: str, **more: Any) -> None:
        super().__init__(**more, help=argparse.SUPPRESS)
        self._words = words

    def __call__(self, parser: argparse.ArgumentParser, _options: argparse.Namespace, values: Any, *_: Any) -> None:
        parser.error(f"{self.option_strings[0]} {values}: {self._words}")


def add_command(commands: Any, text: str, epilog: str | None) -> argparse.ArgumentParser:
    """Add the command of a text (see the module) to the subparsers; its parser."""
    (line, description), *entries = _entries(text)
    name, _, words = line.partition("  ")
    parser: argparse.ArgumentParser = commands.add_parser(name, help=words, description=description, epilog=epilog)
    place: Any = parser
    pair: Any = None
    for head, words in entries:
        if head.endswith(":"):
            place = parser if head == "options:" else parser.add_argument_group(head[:-1])
        elif "(exclusive" in head:
            pair = pair or place.add_mutually_exclusive_group()
            _add(pair, head.replace("exclusive, ", "").replace(" (exclusive)", ""), words)
        else:
            _add(place, head, words)
    return parser


def _entries(text: str) -> Iterator[tuple[str, str]]:
    """(head, words) of the command and of each of its arguments and groups."""
    for number, entry in enumerate(re.split(r"\n(?! |\n)", text.strip())):
        if not number:
            line, _, description = entry.partition("\n")
            yield line, "\n".join(" ".join(paragraph.split()) for paragraph in description.split("\n\n"))
        else:
            head, _, words = entry.partition("  ")
            yield head, " ".join(words.split())


def _add(place: Any, head: str, words: str) -> None:
    head, _, about = head.removesuffix(")").partition(" (")
    given = head.split()
    names = [name for name in given if name.startswith("-")] or given[:1]
    metavar = given[len(names) :]
    more: dict[str, Any] = {"metavar": metavar[0] if len(metavar) == 1 else tuple(metavar)} if metavar else {}
    for said in filter(None, about.split(", ")):
        if said == "refused":
            place.add_argument(*names, action=_Refused, words=words)
            return
        if "|" in said:
            more |= {"choices": said.split("|"), "type": str.lower}
        elif said.startswith("= "):
            more["default"] = said.removeprefix("= ")
        elif " = " in said:
            more["dest"], _, more["const"] = said.partition(" = ")
            more["action"] = "store_const"
        else:
            more |= _SAID[said]
    if not metavar and not {"choices", "action"} & more.keys():
        more["action"] = "store_true"
    place.add_argument(*names, help=words, **more)


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
