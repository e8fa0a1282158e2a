"""Graphs of catalogue models, captured once and kept in a store: the second time, torch is not even imported."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from hashlib import sha256
from typing import TYPE_CHECKING

from alpa_explore.graph import TrainingGraph, full_precision
from alpa_explore.graph.document import dump_graph, load_graph
from alpa_explore.models.catalog import CatalogEntry, entry, microbatch_size
from alpa_explore.models.configs import HuggingFaceConfig, MLPConfig, ModelConfig, WideResNetConfig
from alpa_explore.numerics.memory import no_collection
from alpa_explore.store.cache import Store
from alpa_explore.store.code_version import code_version

if TYPE_CHECKING:
    from alpa_explore.tracing.batches import Batches

CAPTURED_BY = ("arguments.py", "cluster", "errors.py", "graph", "models", "numerics", "tracing", "units.py")
"""The parts of this package on which the capture of a catalogue model depends; their digest is in the key."""


def catalogue_graph(
    known: CatalogEntry,
    samples: int,
    *,
    rematerialization: bool | None = None,
    precision: str | None = None,
    optimizer: str = "adam",
    store: Store | None = None,
    capturing: Callable[[], AbstractContextManager[None]] = nullcontext,
) -> TrainingGraph:
    """The graph of a microbatch of `samples`; by default in the precision and rematerialisation of the model's
    entry. `capturing` is the context of a capture, where `store` does not have the graph."""
    request = (
        known.reference,
        samples,
        known.precision if precision is None else full_precision(precision),
        known.rematerialization if rematerialization is None else rematerialization,
        optimizer,
    )
    key = f"graph-{sha256(repr((request, code_version(CAPTURED_BY, ('torch',)))).encode()).hexdigest()}"
    if store is not None and (stored := store.get(key)) is not None:
        return load_graph(stored)
    with capturing(), no_collection():  # importing torch alone creates half a million permanent objects
        from alpa_explore.models.factory import make_inputs, make_module
        from alpa_explore.tracing.capture import capture

        def captured(config: ModelConfig) -> TrainingGraph:
            return capture(
                make_module(config, "meta", 0),
                make_inputs(config, samples, "meta", 0),
                name=known.name,
                recipe=known.reference,
                precision=request[2],
                rematerialization=request[3],
                optimizer=optimizer,
            )

        graph = unrolled(known.config, captured) or captured(known.config)
        if isinstance(known.config, HuggingFaceConfig):
            graph = replace(graph, warnings=(*graph.warnings, *known.config.remarks))
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
        return catalogue_graph(known, samples, rematerialization=rematerialization, precision=precision, store=store)

    return Batches(capture_at, microbatch_size(known, known.num_microbatches), unit=1)


def unrolled(config: ModelConfig, captured: Callable[[ModelConfig], TrainingGraph]) -> TrainingGraph | None:
    """The graph of a model from captures with fewer blocks; None when they do not determine it, or when capturing the
    whole model is as fast."""
    from alpa_explore.tracing.resizing.unroll import FEW, MORE, unroll

    if isinstance(config, WideResNetConfig | MLPConfig) or config.periods <= FEW + MORE:
        return None
    few, more = (captured(config.with_periods(periods)) for periods in (FEW, MORE))
    return unroll(few, more, config.periods)
