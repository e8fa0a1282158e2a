"""The record: all measured runs with their predictions, as `benchmarks/validate.py --store` wrote them.

`data/results.json.gz` holds {"format", "version", "made", "sources": […], "columns": […], "rows": [[…], …]}; a row has
the fields of `MeasuredRun` that `columns` names. The figures of the runs are public; `data/README.md` has the licences.
"""

import gzip
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from alpa_explore.accuracy.measured_run import MeasuredRun
from alpa_explore.errors import PlanFileError

FORMAT, VERSION = "alpa_explore.accuracy", 1
FILE = "results.json.gz"


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A table of measured runs."""

    name: str
    """As `MeasuredRun.source`."""
    label: str
    """For people: 'nanotron, Ultra-Scale Playbook'."""
    origin: str
    """The repository and the commit that the figures are from."""
    licence: str
    fitted: str = ""
    """Which of its runs figures were fitted to; empty for none."""
    unseen_fraction: float | None = None
    """Mean error of its iteration times where figures are fitted to the other sources alone: what to expect of a
    cluster that nobody measured. None where that was not computed."""


@dataclass(frozen=True, kw_only=True)
class Record:
    """The measured runs with their predictions."""

    runs: tuple[MeasuredRun, ...] = ()
    sources: tuple[Source, ...] = ()
    made: str = ""
    """Which costs the predictions were made with."""

    def of(self, source: str) -> tuple[MeasuredRun, ...]:
        """The runs of a source."""
        return tuple(run for run in self.runs if run.source == source)

    def label(self, source: str) -> str:
        """The name of a source for people."""
        return next((s.label for s in self.sources if s.name == source), source)


@cache
def stored_record() -> Record:
    """The record of this version of the package; one without runs where none was made yet."""
    return record_from_bytes((files(__package__) / "data" / FILE).read_bytes())


def record_from_bytes(packed: bytes) -> Record:
    """The record of a file's content. PlanFileError for another format."""
    document = json.loads(gzip.decompress(packed))
    if (document.get("format"), document.get("version")) != (FORMAT, VERSION):
        raise PlanFileError(
            "The record of measured runs has another format",
            found=f"{document.get('format')!r}, version {document.get('version')!r}",
            remedy="Make it again with `python benchmarks/validate.py --store`.",
        )
    columns = document["columns"]
    return Record(
        runs=tuple(MeasuredRun(**dict(zip(columns, row, strict=True))) for row in document["rows"]),
        sources=tuple(Source(**source) for source in document["sources"]),
        made=document["made"],
    )


@cache
def stored_reasons() -> tuple[Mapping[str, str], ...]:
    """What people found out about runs that are predicted badly, or are left out: {"source", "feature", "value",
    "why"} each. `feature` and `value` name the runs as `weak_spots` does; empty where all runs of the source are
    meant, and an empty `source` means all."""
    text = (files(__package__) / "data" / "reasons.json").read_text(encoding="utf-8")
    return tuple(json.loads(text)["reasons"])
