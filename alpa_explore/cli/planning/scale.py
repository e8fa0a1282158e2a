"""`alpa-explore scale MODEL --devices h100,b200 --nodes 1,2,4`: where a model fits, how fast it is, what it costs."""

import argparse
import sys
from collections.abc import Sequence

from alpa_explore.cli.options import FIGURE, MODEL, NO_MICROBATCHES, QUESTION, chosen_model
from alpa_explore.cli.output import check_file, print_json, write_figure
from alpa_explore.cli.progress_line import ProgressLine
from alpa_explore.errors import OptionError
from alpa_explore.plans.report.tables import row_of
from alpa_explore.plans.report.text import render_table

COMMAND = f"""scale  where a model fits, how fast it trains and what it costs: devices × number of nodes
    The fastest uniform layout on each device and number of nodes, or what is missing to fit.
{MODEL}
--devices A,B (= h100)  device presets (default: h100)
--nodes 1,2,4 (= 1,2,4,8)  numbers of nodes (default: 1,2,4,8)
--devices-per-node M (int)  devices of a node (default: 8, or those of a rack)
{QUESTION}
{NO_MICROBATCHES}
--price DEVICE=DOLLARS (several)  dollars for an hour of one device; may be repeated
--no-cache  neither read nor write the cache
{FIGURE}"""
EPILOG = """Dollars are only computed for devices with a --price; none is known beforehand.

example:
  alpa-explore scale llama-3-70b --devices h100,b200 --nodes 1,2,4,8 --price h100=2.5 --price b200=4.2"""


def run(options: argparse.Namespace) -> int:
    """Print a row for each device and number of nodes. 1 where the model fits on none."""
    check_file(options.html)
    model = chosen_model(options)
    with ProgressLine(sys.stderr) as line:
        line.say(f"pricing {model.name} on {options.nodes} nodes of {options.devices}")
        from alpa_explore.uniform_layouts.scaling import scaling

        found = scaling(
            model.reference,
            _listed(options.devices),
            _counts(options.nodes),
            devices_per_node=options.devices_per_node,
            software=options.software,
            global_batch=options.global_batch,
            precision=options.precision,
            prices=_prices(options.price),
            cache=not options.no_cache,
            progress=line,
        )
    from alpa_explore.uniform_layouts.report import scaling_sentence, scaling_table

    if options.html is not None:
        from alpa_explore.figures.layouts import scaling_curve_figure

        write_figure(lambda: scaling_curve_figure(found), options.html)
    if options.json:
        print_json({**row_of(found, "model global_batch sequence precision"), "points": scaling_table(found)})
    else:
        print(f"{scaling_sentence(found)}\n\n{render_table(scaling_table(found))}")
    return 0 if any(point.best is not None for point in found.points) else 1


def _listed(text: str) -> Sequence[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _counts(text: str) -> list[int]:
    parts = _listed(text)
    if not parts or not all(part.isdecimal() for part in parts):
        raise OptionError("--nodes must be numbers of nodes", found=repr(text), remedy="For example --nodes 1,2,4.")
    return [int(part) for part in parts]


def _prices(given: Sequence[str]) -> dict[str, float]:
    prices = {}
    for text in given:
        device, equals, dollars = text.partition("=")
        try:
            prices[device.strip()] = float(dollars)
        except ValueError as error:
            raise OptionError(
                "--price takes a device and dollars for an hour of it",
                found=repr(text) + ("" if equals else ", without ="),
                remedy="For example --price h100=2.5.",
            ) from error
    return prices
