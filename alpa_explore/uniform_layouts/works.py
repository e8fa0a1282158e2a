"""The work of every layout, from the model's own graph: two captures, from which the graphs of all microbatches follow,
read on every mesh of devices that share experts, a sequence and tensors.

The work of a graph depends on samples of a microbatch, these degrees and a few features of the software, not on stages,
copies, ZeRO or recomputation: hundreds of layouts share some dozens of works. They are kept in the cache; with all of
them there, nothing is captured and no torch imported.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

from alpa_explore.baselines.block_work import CapturedBlocks, DecoderWork
from alpa_explore.baselines.layout import Layout
from alpa_explore.cluster import Cluster
from alpa_explore.errors import BatchError, CancelledError, OptionError
from alpa_explore.graph import TrainingGraph
from alpa_explore.models.catalog import CatalogEntry
from alpa_explore.planner.resources import Resources
from alpa_explore.store.cache import Store
from alpa_explore.tracing.cancelling import cancelled_by
from alpa_explore.uniform_layouts import tuning
from alpa_explore.uniform_layouts.model_work import ModelKey, features, own_work, stored_work, work_from
from alpa_explore.uniform_layouts.structure import Structure, structure_of

READ_BY = ("models", "graph", "tracing", "sharding", "intra_op", "cost", "baselines", "uniform_layouts")
"""The parts of this package on which a work depends."""
READ_WITH = ("torch", "numpy")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Source:
    """What decides on the work that is read from a graph."""

    key: ModelKey
    degrees: tuple[int, int, int]
    """Devices that share the experts, the sequence, the tensors."""
    features: tuple[object, ...]
    device: str
    per_node: int


@dataclass(slots=True)
class Works:
    """The works of a model's layouts; those of one cluster serve others with the same device and software."""

    model: CatalogEntry
    dtype: str
    store: Store | None = None
    _read: dict[_Source, DecoderWork | OptionError] = field(default_factory=dict)
    """Works, and why the model has none with some degrees."""
    structure: Structure | None = None
    """Of the model, once it was read."""

    def read_structure(self, resources: Resources, *, known_alone: bool = False) -> Structure:
        """What of the model decides on its layouts. OptionError where it is no sequence of blocks; otherwise as
        `prepare`."""
        if self.structure is not None:
            return self.structure
        key = self._key(1)
        name = repr(("structure of a model", key))
        stored = None if self.store is None else self.store.get(name)
        if stored is not None:
            self.structure = Structure.of_stored(stored)
            return self.structure
        if known_alone:
            raise _not_known("the structure of the model")
        with resources.executor.preparing(), cancelled_by(resources.cancel):
            self.structure = captured_model(key)[1]
        if self.store is not None:
            self.store.put(name, self.structure.stored())
        return self.structure

    def prepare(
        self, asked: Iterable[tuple[Cluster, Layout]], resources: Resources, *, known_alone: bool = False
    ) -> None:
        """Read all works of these layouts that are not known. CancelledError where `cancel` is set: what was read by
        then is kept; and with `known_alone` where there are any."""
        missing: dict[_Source, Cluster] = {}
        for cluster, layout in asked:
            source = self._source(cluster, layout)
            if source not in self._read and source not in missing:
                stored = None if self.store is None else self.store.get(_name(source))
                if stored is None:
                    missing[source] = cluster
                elif "remedy" in stored:
                    self._read[source] = OptionError(stored["what"], found=stored["found"], remedy=stored["remedy"])
                else:
                    self._read[source] = work_from(stored)
        if not missing:
            return
        if known_alone:
            raise _not_known(f"{len(missing)} works")
        executor, cancel = resources.executor, resources.cancel
        with executor.preparing(), cancelled_by(cancel):
            graphs = _graphs_of({source.key for source in missing})
        blocks = self.read_structure(resources).captured
        tasks = {s: (graphs[s.key], cluster, s.degrees, blocks) for s, cluster in missing.items()}
        for source, work in executor.map(_read_work, tasks, name="works", progress=resources.progress, cancel=cancel):
            self._read[source] = work
            if self.store is not None:
                refused = isinstance(work, OptionError)
                stored = {k: getattr(work, k) for k in ("what", "found", "remedy")} if refused else stored_work(work)
                self.store.put(_name(source), stored)

    def of(self, cluster: Cluster, layout: Layout) -> DecoderWork | OptionError:
        """The work of a layout that was prepared, or why the model has none with its degrees."""
        return self._read[self._source(cluster, layout)]

    def _source(self, cluster: Cluster, layout: Layout) -> _Source:
        return _Source(
            key=self._key(layout.microbatch * layout.expert),
            degrees=(layout.expert, layout.context, layout.tensor),
            features=features(cluster.device),
            device=cluster.device.name,
            per_node=cluster.devices_per_node,
        )

    def _key(self, samples: int) -> ModelKey:
        return ModelKey(config=self.model.config, micro_batch=samples, dtype=self.dtype)


def _read_work(task: tuple[TrainingGraph, Cluster, tuple[int, int, int], CapturedBlocks]) -> DecoderWork | OptionError:
    try:
        return own_work(*task)
    except OptionError as error:  # of these degrees; others may be possible
        return error


def _not_known(what: str) -> CancelledError:
    return CancelledError(
        "The layouts are not known", found=f"{what} would have to be read", remedy="Ask without known_alone."
    )


@lru_cache(maxsize=tuning.KEPT_GRAPHS)
def captured_model(key: ModelKey) -> tuple[TrainingGraph, Structure]:
    """The graph of a model with few blocks, and the structure of the whole."""
    from alpa_explore.models.factory import make_inputs, make_module
    from alpa_explore.tracing.capture import capture
    from alpa_explore.tracing.resizing.fewer_blocks import block_kinds

    module, inputs = make_module(key.config, "meta", 0), make_inputs(key.config, key.micro_batch, "meta", 0)
    blocks, name = block_kinds(module), type(key.config).__name__
    if blocks is None:
        raise OptionError(
            "A uniform layout divides a model by its blocks, and this model has none",
            found=f"{key.config.description}: no list of modules with two matrices or more",
            remedy="Plan it with `alpa-explore plan`, which needs no blocks.",
        )
    with blocks.shortened():
        graph = capture(module, inputs, name=name, precision=key.dtype)
    places = tuple(blocks.chosen.index(number) for number in blocks.examples)
    return graph, structure_of(graph, blocks.kinds, CapturedBlocks(paths=blocks.paths, examples=places))


def _name(source: _Source) -> str:
    return repr(("work of a layout", source))


def _graphs_of(keys: Iterable[ModelKey]) -> dict[ModelKey, TrainingGraph]:
    """The graphs of models, from two captures for all that differ in samples alone."""
    families: dict[ModelKey, list[ModelKey]] = {}
    for key in sorted(keys, key=lambda key: key.micro_batch):
        families.setdefault(replace(key, micro_batch=1), []).append(key)
    return {key: graph for family in families.values() for key, graph in _of_family(family)}


def _of_family(keys: list[ModelKey]) -> Iterator[tuple[ModelKey, TrainingGraph]]:
    """The graphs of one family, from as few captures as determine them."""
    capture = lru_cache(maxsize=None)(lambda key: captured_model(key)[0])

    def from_captures(keys: list[ModelKey]) -> list[tuple[ModelKey, TrainingGraph]]:
        from alpa_explore.tracing.resizing.rescale import resize_decoder

        wanted = keys[:1] + [replace(key, micro_batch=2 * key.micro_batch) for key in keys[: len(keys) > 1]]
        captures = {_size(key): capture(key) for key in wanted}
        return [(key, resize_decoder(captures, _size(key))) for key in keys]

    try:
        yield from from_captures(keys)
    except BatchError:
        # torch treats one sample specially in some models: it has a capture of its own.
        for some in ([k for k in keys if k.micro_batch == 1], [k for k in keys if k.micro_batch > 1]):
            try:
                yield from from_captures(some)
            except BatchError:
                yield from ((key, capture(key)) for key in some)


def _size(key: ModelKey) -> Any:
    from alpa_explore.tracing.resizing.rescale import DecoderSize

    return DecoderSize(samples=key.micro_batch, positions=1, words=1)
