"""The graph of one microbatch, from the model that the user gave: a graph, a model at any batch size, or a name."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING

from alpa_explore.cluster.precisions import recipe_of, tensors_of
from alpa_explore.errors import OptionError
from alpa_explore.graph import TrainingGraph, full_precision
from alpa_explore.models.catalog import divided_batch, entry, microbatch_size
from alpa_explore.sharding.splits import with_discovered_splits
from alpa_explore.store.cache import Store
from alpa_explore.tracing.catalogue import catalogue_graph

if TYPE_CHECKING:
    from alpa_explore.tracing.batches import Batches


def microbatch_graph(
    model: TrainingGraph | Batches | str,
    num_microbatches: int,
    *,
    rematerialization: bool | None = None,
    precision: str | None = None,
    global_batch: int | None = None,
    store: Store | None = None,
    capturing: Callable[[], AbstractContextManager[None]] = nullcontext,
) -> TrainingGraph:
    """The graph of one microbatch: `model` itself, or the model captured with global batch / B samples; operators
    without a rule have discovered splits.

    Graphs of catalogue models are kept in `store`; `capturing` is the context of a capture. `precision` may be one of
    products alone, as fp8 (`cluster.precisions`): a catalogue model then has tensors in bfloat16, a graph its own.
    OptionError where the microbatch or the precision of a captured graph would have to change; UnknownNameError for a
    name that is not in the catalogue.
    """
    if isinstance(model, str):
        named = entry(model)
        samples = microbatch_size(named, num_microbatches, global_batch)
        return with_discovered_splits(
            catalogue_graph(
                named,
                samples,
                rematerialization=rematerialization,
                precision=tensors_of(precision),
                store=store,
                capturing=capturing,
            )
        )
    if isinstance(model, TrainingGraph):
        graph = model
        if global_batch is not None and graph.samples * num_microbatches != global_batch:
            raise OptionError(
                "The microbatch of a captured graph is fixed",
                found=f"{graph.samples} samples × B = {num_microbatches} for a global batch of {global_batch}",
                remedy="Give `ax.capture_batches(module, inputs)` instead of the graph, or another B.",
            )
    elif not hasattr(model, "at_batch"):
        raise OptionError(
            "The model is not captured",
            found=type(model).__name__,
            remedy="Give `ax.capture(module, inputs)`, `ax.capture_batches(module, inputs)`, or a name that "
            "`alpa-explore models` lists.",
        )
    else:
        samples = model.samples
        if global_batch is not None:
            samples = divided_batch(global_batch, num_microbatches, "the model")
        with capturing():
            graph = model.at_batch(samples)
    if precision is not None and not recipe_of(precision) and full_precision(precision) != graph.precision:
        raise OptionError(
            "The precision of a captured graph is fixed",
            found=f"precision={precision!r} for a graph in {graph.precision}",
            remedy="Give precision= to capture() instead.",
        )
    graph = with_discovered_splits(graph)
    return graph if rematerialization is None else replace(graph, rematerialization=rematerialization)
