"""Frontiers as entries of the solve cache: JSON-able dictionaries, and back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from typing import Any

from alpa_explore.intra_op.composition.cut_blocks import Range
from alpa_explore.intra_op.stage.stage_totals import StageTotals
from alpa_explore.pricing.frontier import Frontier, StageChoice
from alpa_explore.pricing.stage_costs import Provenance

_WITHOUT_POINTS = tuple(field.name for field in fields(Frontier) if field.name != "points")


def dump(frontiers: Mapping[Range, Frontier]) -> dict[str, Any]:
    """The frontiers of layer ranges as an entry: the choices of a block, which many points share, are written once."""
    number: dict[tuple[int, ...], int] = {}
    ranges = []
    for (first, last), frontier in frontiers.items():
        points = [
            {
                "choices": point.choices,
                "pieces": [number.setdefault(choices, len(number)) for choices in point.block_choices],
                "totals": asdict(point.totals),
                "provenance": point.provenance,
            }
            for point in frontier.points
        ]
        figures = {name: getattr(frontier, name) for name in _WITHOUT_POINTS}
        ranges.append({"first": first, "last": last, **figures, "points": points})
    return {"choices": list(number), "ranges": ranges}


def load(entry: Mapping[str, Any]) -> dict[Range, Frontier]:
    """The frontiers that `dump` wrote."""
    block_choices = [tuple(choices) for choices in entry["choices"]]
    return {(stored["first"], stored["last"]): _frontier(stored, block_choices) for stored in entry["ranges"]}


def _frontier(stored: Mapping[str, Any], block_choices: Sequence[tuple[int, ...]]) -> Frontier:
    return Frontier(
        points=tuple(_stage_choice(point, block_choices) for point in stored["points"]),
        solves=stored["solves"],
        variables=stored["variables"],
        constraints=stored["constraints"],
        optimal=stored["optimal"],
        bound_seconds=stored["bound_seconds"],
        proven=stored["proven"],
        least_peaks=tuple(stored["least_peaks"]),
        optima=tuple((inverse_b, seconds) for inverse_b, seconds in stored["optima"]),
        bounds_within=tuple((held, bound) for held, bound in stored["bounds_within"]),
    )


def _stage_choice(stored: Mapping[str, Any], block_choices: Sequence[tuple[int, ...]]) -> StageChoice:
    return StageChoice(
        choices=tuple(stored["choices"]),
        totals=StageTotals(**stored["totals"]),
        provenance=Provenance(stored["provenance"]),
        block_choices=tuple(block_choices[i] for i in stored["pieces"]),
    )
