"""A file for another tool, and the comment at its top: what it is made from, and what it does not express.

The exports to PyTorch share schedules by the names of torch.distributed.pipelining, and shards of FSDP2.
"""

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass

from alpa_explore import units
from alpa_explore.plans.export.degrees import TOLERANCE, Limit, Limits, PlanDegrees, PricedAgain
from alpa_explore.plans.report.parallelism import parallelism_lines
from alpa_explore.plans.report.text import sentence
from alpa_explore.plans.value import PlanValue
from alpa_explore.units import printable

_WIDTH = 116


@dataclass(frozen=True, slots=True, kw_only=True)
class Exported:
    """A plan in the form of another tool."""

    target: str
    text: str
    ending: str
    """Of the file's name: 'sh', 'py'."""
    degrees: PlanDegrees
    limits: tuple[Limit, ...]
    """What the file does not express of the plan, and what it does instead; also at the top of the text."""


def heading(
    plan: PlanValue, tool: str, usage: Sequence[str], limits: Sequence[Limit], again: PricedAgain | None
) -> str:
    """Comment lines: the plan in words, how the file is used, and its limits."""
    lines = [
        f"{printable(plan.model.name)} on {printable(str(plan.cluster))} for {tool}, exported by alpa_explore.",
        "",
        sentence(plan),
        *(line[0].upper() + line[1:] for line in parallelism_lines(plan)),
        "",
        *usage,
        "",
    ]
    if limits:
        lines.append("What this file does not express of the plan, and what it does instead:")
        lines += [f"- {limit}" for limit in limits]
    elif again is None:
        lines.append("This file expresses the layout of the plan, which was not priced again.")
    else:
        lines.append("This file expresses everything that the plan decides.")
    if again is not None and not again.reason and again.limit(plan) is None:
        took, held = units.seconds(again.seconds), units.bytes_(again.bytes)
        lines.append(f"Its layout, priced again, takes {took} and {held}: those of the plan within {TOLERANCE:.0%}.")
    wrapped = (
        part
        for line in lines
        for part in textwrap.wrap(printable(line), _WIDTH, subsequent_indent="  " * line.startswith("- ")) or [""]
    )
    return "".join(f"# {part}".rstrip() + "\n" for part in wrapped)


_SAME = {
    "1f1b": "1F1B",
    "gpipe": "GPipe",
    "interleaved-1f1b": "Interleaved1F1B",
    "zb-v": "ZBVZeroBubble",
    "dualpipe-v": "DualPipeV",
}
_NEAREST = {
    "eager-1f1b": "1F1B",
    "zb-h1": "1F1B",
    "v-half": "ZBVZeroBubble",
    "v-min": "ZBVZeroBubble",
    "dualpipe": "1F1B",
}
"""Schedules that it lacks -> the one with the same stages on each device that is nearest."""


def torch_schedule(degrees: PlanDegrees, limits: Limits) -> str:
    """The name; where it is another schedule, `limits` gets an entry."""
    name = degrees.schedule
    if name in _SAME:
        return _SAME[name]
    limits.note(f"The schedule {name}", f"{_NEAREST[name]}, the nearest that PyTorch has")
    return _NEAREST[name]


def note_shards(degrees: PlanDegrees, limits: Limits) -> None:
    """FSDP2 shards weights wherever it shards anything."""
    if degrees.zero_stage in (1, 2) and degrees.data * degrees.context > 1:
        what = "Only optimizer state is sharded (ZeRO-1)" if degrees.zero_stage == 1 else "Weights are whole (ZeRO-2)"
        limits.note(what, "weights are sharded, too (FSDP2), and gathered once an iteration")
