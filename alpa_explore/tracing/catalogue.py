"""Graphs of catalogue models, captured once and kept: the second time torch need not even be imported."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from alpa_explore.graph import TrainingGraph
from alpa_explore.graph.document import dump_graph, load_graph
from alpa_explore.models.catalog import CatalogEntry, entry, microbatch_size

if TYPE_CHECKING:
    from alpa_explore.tracing.batches import Batches

_DECIDING = ("graph", "models", "tracing")
"""The packages that decide what a capture of a catalogue model returns."""


class Store(Protocol):
    """Where graphs are kept (`profiling.cache.SolveCache`)."""

    def get(self, key: str) -> dict[str, Any] | None:
        """The entry of a key; None where there is none."""

    def put(self, key: str, value: Mapping[str, Any]) -> None:
        """Keep an entry, or let it be."""


def catalogue_graph(
    known: CatalogEntry, samples: int, *, rematerialization: bool | None = None, precision: str | None = None,
    store: Store | None = None,
) -> TrainingGraph:  # fmt: skip
    """The graph of a microbatch of `samples`, in the model's own precision and rematerialisation unless told."""
    asked = (
        known.name, samples, known.precision if precision is None else precision,
        known.rematerialization if rematerialization is None else rematerialization,
    )  # fmt: skip
    key = f"graph-{sha256(repr((asked, _deciding())).encode()).hexdigest()}"
    if store is not None and (stored := store.get(key)) is not None:
        return load_graph(stored)
    from alpa_explore.models.catalog import build
    from alpa_explore.tracing.capture import capture

    module, inputs = build(known.name, samples)
    graph = capture(
        module, inputs, name=known.name, recipe=known.name, precision=asked[2], rematerialization=asked[3]
    )  # fmt: skip
    if store is not None:
        store.put(key, dump_graph(graph))
    return graph


def catalogue_batches(
    name: str, *, rematerialization: bool | None = None, precision: str | None = None, store: Store | None = None
) -> Batches:
    """A catalogue model at any batch size."""
    from alpa_explore.tracing.batches import Batches

    known = entry(name)

    def capture_at(samples: int) -> TrainingGraph:
        return catalogue_graph(
            known, samples, rematerialization=rematerialization, precision=precision, store=store
        )  # fmt: skip

    return Batches(capture_at, microbatch_size(known, known.num_microbatches), unit=1)


@cache
def _deciding() -> str:
    """Changed code, or another torch, never meets an old graph."""
    digest = sha256(version("torch").encode())
    home = Path(__file__).parent.parent
    for package in _DECIDING:
        for source in sorted((home / package).rglob("*.py")):
            digest.update(source.read_bytes())
    return digest.hexdigest()
