"""The work of every layout, from the model's own graph: two captures, from which the graphs of all microbatches follow,
read on every mesh of devices that share experts, a sequence and tensors.

The work of a graph depends on samples of a microbatch, these degrees and a few features of the software, not on stages,
copies, ZeRO or recomputation: hundreds of layouts share some dozens of works. They are kept in the cache; with all of
them there, nothing is captured and no torch imported.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

from alpa_explore.baselines.block_work import CapturedBlocks, Counted, DecoderWork, decoder_work
from alpa_explore.baselines.kinds import dividing_sequences, ordered
from alpa_explore.baselines.layout import Layout
from alpa_explore.baselines.roles import Role
from alpa_explore.cluster import Cluster, Device, Submesh, logical_mesh
from alpa_explore.errors import BatchError, CancelledError, OptionError
from alpa_explore.execution.progress import TaskCount
from alpa_explore.graph import TrainingGraph
from alpa_explore.models.catalog import CatalogEntry
from alpa_explore.planner.resources import Resources
from alpa_explore.store.cache import Store
from alpa_explore.store.records import plain, record
from alpa_explore.tracing.cancelling import cancelled_by
from alpa_explore.uniform_layouts import tuning
from alpa_explore.uniform_layouts.structure import Structure, structure_of

READ_BY = ("models", "graph", "tracing", "sharding", "intra_op", "cost", "baselines", "uniform_layouts")
"""The parts of this package on which a work depends."""
READ_WITH = ("torch", "numpy")


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelKey:
    """What decides on the captured graph."""

    config: Any
    """A config of `models.configs`. Of a measured run: with two periods of blocks, the vocabulary padded as the
    framework does, and at least tp heads of keys (where there are fewer, frameworks replicate them)."""
    micro_batch: int
    """Samples of a microbatch of one data-parallel replica."""
    dtype: str
    """torch's name of the dtype of tensors."""
    period: int = 1
    """Unlike blocks that take turns."""
    routed: bool = False
    """Whether blocks have routed experts."""
    predicted_ahead: int = 0
    """`Sizes.predicted_ahead`."""


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
            self.structure = record(Structure, stored, checked=False)
            return self.structure
        if known_alone:
            raise _not_known("the structure of the model")
        TaskCount("capture", 0, resources.progress)
        with resources.executor.preparing(), cancelled_by(resources.cancel):
            self.structure = captured_model(key)[1]
        if self.store is not None:
            self.store.put(name, plain(self.structure))
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
                    self._read[source] = record(DecoderWork, stored, checked=False)
        if not missing:
            return
        if known_alone:
            raise _not_known(f"{len(missing)} works")
        executor, cancel = resources.executor, resources.cancel
        TaskCount("capture", 0, resources.progress)
        with executor.preparing(), cancelled_by(cancel):
            graphs = _graphs_of({source.key for source in missing})
        blocks = self.read_structure(resources).captured
        tasks = {s: (graphs[s.key], cluster, s.degrees, blocks) for s, cluster in missing.items()}
        for source, work in executor.map(_read_work, tasks, name="works", progress=resources.progress, cancel=cancel):
            self._read[source] = work
            if self.store is not None:
                refused = isinstance(work, OptionError)
                stored = {k: getattr(work, k) for k in ("what", "found", "remedy")} if refused else plain(work)
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


def check_dtype(device: Device, dtype: str) -> None:
    """OptionError for tensors in a dtype that the device does not compute in."""
    if dtype not in device.peak_flops:
        raise OptionError(
            "The device does not compute in this precision",
            found=f"{dtype} on {device.name}",
            remedy=f"It has {', '.join(device.peak_flops)}.",
        )


def features(device: Device) -> tuple[object, ...]:
    """What of a device and its software decides on the work that is read from a graph."""
    software = device.software
    products = software.joins_projections, software.low_precision, software.lowers_head
    others = software.fuses_pointwise, software.sequence_parallel, software.gradient_bytes
    return *products, *others, software.recomputes_whole, software.plain_loop, device.measured is not None


def own_work(
    graph: TrainingGraph,
    cluster: Cluster,
    degrees: tuple[int, int, int],
    blocks: CapturedBlocks,
    *,
    counted: Counted = Counted.ALL,
) -> DecoderWork:
    """The work of a model's graph, of the samples of all devices that share experts, by (expert, context, tensor)
    parallelism."""
    tensor = Role.TENSOR_SEQUENCE if cluster.software.sequence_parallel else Role.TENSOR
    context, devices = degrees[1], math.prod(degrees)
    if context > 1:
        cluster, graph = dividing_sequences(cluster, None), ordered(graph, context, None)
    nodes = devices // cluster.devices_per_node if devices % cluster.devices_per_node == 0 else 1
    mesh = logical_mesh(cluster, Submesh(nodes, devices // nodes), degrees)
    roles = (Role.EXPERT, Role.CONTEXT, tensor)
    work = decoder_work(graph, cluster.device, mesh, roles, blocks=blocks, counted=counted)
    return replace(work, boundary_bytes=work.boundary_bytes / (degrees[0] * context))


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
        from alpa_explore.tracing.resizing.rescale import rescale

        if len(keys) < 2:
            return [(key, capture(key)) for key in keys]
        low, high = (capture(replace(keys[0], micro_batch=times * keys[0].micro_batch)) for times in (1, 2))
        return [(key, rescale(low, high, key.micro_batch)) for key in keys]

    try:
        yield from from_captures(keys)
    except BatchError:
        # torch treats one sample specially in some models: it has a capture of its own.
        for some in ([k for k in keys if k.micro_batch == 1], [k for k in keys if k.micro_batch > 1]):
            try:
                yield from from_captures(some)
            except BatchError:
                yield from ((key, capture(key)) for key in some)
