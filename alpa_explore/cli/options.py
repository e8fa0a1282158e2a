"""What several commands ask: the model; cluster, software, global batch and precision where an iteration is priced."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from alpa_explore.errors import OptionError

if TYPE_CHECKING:
    from alpa_explore.cluster import Cluster
    from alpa_explore.models.catalog import CatalogEntry


def add_model(argument: Callable[..., Any]) -> None:
    """Add MODEL, --hf and --sequence to the parser of a command."""
    argument(
        "model",
        metavar="MODEL",
        nargs="?",
        help="a name that `alpa-explore models` lists, or the path of a Hugging Face config.json",
    )
    argument(
        "--hf",
        metavar="CONFIG",
        help="a Hugging Face config.json in place of MODEL; nothing is downloaded (needs the extra `hf`)",
    )
    argument(
        "--sequence",
        type=int,
        metavar="S",
        help="tokens of a sample (default: that of the model, 4096 for a config); also as MODEL@S",
    )


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


def add_cluster(argument: Callable[..., Any]) -> None:
    """Add --cluster."""
    argument(
        "--cluster",
        required=True,
        metavar="NxM:DEVICE",
        help="the cluster, as in 2x8:a100 or 2x8:a100@fsdp, or a JSON or TOML file",
    )


def add_hosts(argument: Callable[..., Any]) -> None:
    """Add what says which hosts of a Dask scheduler are planned for."""
    argument("--hosts", metavar="H1,H2", help="only these attached hosts, by name or address (default: all)")
    argument("--devices-per-node", type=int, metavar="M", help="devices of a host to plan for (default: most of them)")
    argument("--allow-remote", action="store_true", help="allow a scheduler outside this machine and private networks")


def add_layering(argument: Callable[..., Any]) -> None:
    """Add --layers and --delta."""
    argument("--layers", type=int, metavar="L", help="number of layers of operators (default: the paper's)")
    argument(
        "--delta",
        type=float,
        default=0.5,
        metavar="X",
        help="FLOP tolerance: fraction by which a layer may exceed the mean FLOPs (default: 0.5)",
    )


def add_allow_import(argument: Callable[..., Any], of: str = "the plan file") -> None:
    """Add --allow-import."""
    argument(
        "--allow-import",
        action="store_true",
        help=f"allow a recipe package.module:function of {of}, which runs that code",
    )


def add_question(argument: Callable[..., Any]) -> None:
    """Add --software, --global-batch and --precision."""
    argument(
        "--software",
        metavar="NAME",
        help="the framework that runs the model: megatron, nanotron, fsdp, compiled, eager, alpa (the paper's ideal "
        "setting), … (default: that of the device); also as 2x8:a100@fsdp",
    )
    argument("--global-batch", type=int, metavar="N", help="samples of an iteration (default: the model's)")
    argument(
        "--precision",
        metavar="NAME",
        help="dtype of weights and activations: bf16, fp16 or fp32 (default: the model's); fp8, fp8-current, mxfp8 or "
        "nvfp4: bf16, with linear layers and experts priced in this precision, and the casts that they need",
    )


class _NoMicrobatches(argparse.Action):
    """-B of commands whose layouts have a number of microbatches each."""

    def __call__(self, parser: argparse.ArgumentParser, _options: argparse.Namespace, values: Any, *_: Any) -> None:
        parser.error(
            f"-B {values}: each layout has its own number of microbatches, samples of an iteration / (samples of a "
            "microbatch × DP); give the samples of an iteration with --global-batch N"
        )


def refuse_microbatches(argument: Callable[..., Any]) -> None:
    """Let -B, which `plan` takes, be refused with what to give in its place."""
    argument("-B", "--num-microbatches", action=_NoMicrobatches, help=argparse.SUPPRESS)


def chosen_cluster(options: argparse.Namespace, attached: Cluster | None = None, **changes: Any) -> Cluster:
    """The cluster that the options name, or the attached one, in their software and precision, with these changes.
    ClusterError, OptionError."""
    from alpa_explore.cluster import Cluster

    if options.software is not None:
        changes["software"] = options.software
    cluster = Cluster.parse(options.cluster, **changes) if attached is None else attached.with_changes(**changes)
    return cluster.in_precision(options.precision)
