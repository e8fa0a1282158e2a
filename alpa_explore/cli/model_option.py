"""The model of a command: a name of the catalogue or a Hugging Face config, and the sequence."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from alpa_explore.errors import OptionError

if TYPE_CHECKING:
    from alpa_explore.models.catalog import CatalogEntry


def add_model(parser: argparse.ArgumentParser) -> None:
    """Add MODEL, --hf and --sequence to the parser of a command."""
    argument = parser.add_argument
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
