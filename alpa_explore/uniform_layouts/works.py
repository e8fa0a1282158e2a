"""The work of every layout: few captures, from which the graphs of all other sizes follow, read under every degree of
tensor parallelism; then the ring, the experts and the blocks with a closed form.

The work of a graph depends on samples of a microbatch, positions and heads of a device, padded vocabulary, tensor
parallelism and a few features of the software, not on stages, copies, ZeRO or recomputation: hundreds of layouts share
some dozens of works. They are kept in the cache; with all of them there, nothing is captured and no torch imported.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from alpa_explore.baselines.block_work import DecoderWork
from alpa_explore.cluster import Cluster
from alpa_explore.cost.blocks.block import Division
from alpa_explore.errors import BatchError, CancelledError
from alpa_explore.execution.executors import Executor
from alpa_explore.execution.progress import ProgressCallback
from alpa_explore.graph import TrainingGraph
from alpa_explore.store.cache import Store
from alpa_explore.tracing.cancelling import cancelled_by
from alpa_explore.uniform_layouts.layout import UniformLayout
from alpa_explore.uniform_layouts.models import LayoutModel
from alpa_explore.uniform_layouts.pricing.architecture import padded_vocabulary
from alpa_explore.uniform_layouts.pricing.layout_pricer import LayoutPricer, captured_work, completed, features
from alpa_explore.uniform_layouts.pricing.requests import BLOCKS_CAPTURED, ModelKey
from alpa_explore.uniform_layouts.pricing.stored_work import stored_work, work_from

READ_BY = ("models", "graph", "tracing", "sharding", "intra_op", "cost", "baselines", "uniform_layouts")
"""The parts of this package on which a work depends."""
READ_WITH = ("torch", "numpy")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Source:
    """What decides on the work that is read from a graph."""

    key: ModelKey
    tensor: int
    features: tuple[object, ...]
    device: str
    per_node: int


@dataclass(slots=True)
class Works:
    """The works of a model's layouts; those of one cluster serve others with the same device and software."""

    model: LayoutModel
    dtype: str
    store: Store | None = None
    _read: dict[_Source, DecoderWork] = field(default_factory=dict)
    _completed: dict[tuple[_Source, Division], DecoderWork] = field(default_factory=dict)

    def prepare(
        self,
        asked: Iterable[tuple[Cluster, UniformLayout]],
        *,
        executor: Executor,
        progress: ProgressCallback | None = None,
        cancel: threading.Event | None = None,
        known_alone: bool = False,
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
                else:
                    self._read[source] = work_from(stored)
        if not missing:
            return
        if known_alone:
            raise CancelledError(
                "Works of these layouts are not known",
                found=f"{len(missing)} of them",
                remedy="Ask without known_alone.",
            )
        with executor.preparing(), cancelled_by(cancel):
            graphs = _Graphs().of({source.key for source in missing})
        tasks = {source: (graphs[source.key], cluster, source.tensor) for source, cluster in missing.items()}
        for source, work in executor.map(_read_work, tasks, name="works", progress=progress, cancel=cancel):
            self._read[source] = work
            if self.store is not None:
                self.store.put(_name(source), stored_work(work))

    def of(self, cluster: Cluster, layout: UniformLayout) -> DecoderWork:
        """The work of a layout that was prepared."""
        source = self._source(cluster, layout)
        division = Division(
            samples=layout.microbatch,
            length=source.key.config.sequence,
            tensor=layout.tensor,
            context=layout.context,
            expert=layout.expert,
            expert_tensor=layout.expert_tensor,
            fuses_sinks=cluster.software.fuses_sinks,
        )
        if (source, division) not in self._completed:
            self._completed[source, division] = completed(self._read[source], source.key, division)
        return self._completed[source, division]

    def key(self, software: str, layout: UniformLayout) -> ModelKey:
        """What is captured for a layout."""
        architecture = self.model.architecture
        replicated = replace(architecture, kv_heads=max(architecture.kv_heads, layout.tensor))
        return ModelKey(
            config=replicated.config(
                self.model.sequence // layout.context,
                layers=BLOCKS_CAPTURED,
                vocabulary=padded_vocabulary(architecture.vocabulary, layout.tensor, software),
                software=software,
            ),
            micro_batch=layout.microbatch,
            dtype=self.dtype,
            decoder=architecture.decoder,
        )

    def _source(self, cluster: Cluster, layout: UniformLayout) -> _Source:
        return _Source(
            key=self.key(cluster.software.name, layout),
            tensor=layout.tensor,
            features=features(cluster.software),
            device=cluster.device.name,
            per_node=cluster.devices_per_node,
        )


def _read_work(task: tuple[TrainingGraph, Cluster, int]) -> DecoderWork:
    return captured_work(*task)


def _name(source: _Source) -> str:
    return repr(("work of a layout", source))


class _Graphs:
    """The graphs of models that differ in samples, positions and words, from few captures."""

    def __init__(self) -> None:
        self._captured: dict[ModelKey, TrainingGraph] = {}

    def of(self, keys: Iterable[ModelKey]) -> dict[ModelKey, TrainingGraph]:
        """The graph of each key."""
        families: dict[ModelKey, list[ModelKey]] = {}
        for key in sorted(keys, key=_size):
            families.setdefault(_sized(key, 1, 1, 1), []).append(key)
        return {key: graph for family in families.values() for key, graph in self._of_family(family)}

    def _of_family(self, keys: list[ModelKey]) -> Iterator[tuple[ModelKey, TrainingGraph]]:
        """The graphs of one family, from as few captures as determine them."""
        try:
            yield from self._from_captures(keys)
        except BatchError:
            # torch treats one sample specially in some models: those have captures of their own.
            for some in ([k for k in keys if k.micro_batch == 1], [k for k in keys if k.micro_batch > 1]):
                try:
                    yield from self._from_captures(some)
                except BatchError:
                    yield from ((key, self._capture(key)) for key in some)

    def _from_captures(self, keys: list[ModelKey]) -> list[tuple[ModelKey, TrainingGraph]]:
        from alpa_explore.tracing.resizing.resize_decoder import resize_decoder

        if not keys:
            return []
        # The longest sequence of the fewest samples: what is captured for most layouts anyway.
        base = min(keys, key=lambda key: (key.micro_batch, -key.config.sequence, key.config.vocabulary))
        samples, positions, words = base.micro_batch, base.config.sequence, base.config.vocabulary
        wanted = [base]
        if any(key.micro_batch != samples for key in keys):
            wanted.append(_sized(base, 2 * samples, positions, words))
        if any(key.config.sequence != positions for key in keys):
            wanted.append(
                _sized(base, samples, next(k.config.sequence for k in keys if k.config.sequence != positions), words)
            )
        if any(key.config.vocabulary != words for key in keys):
            wanted.append(
                _sized(
                    base, samples, positions, next(k.config.vocabulary for k in keys if k.config.vocabulary != words)
                )
            )
        captures = {_decoder_size(key): self._capture(key) for key in wanted}
        return [(key, resize_decoder(captures, _decoder_size(key))) for key in keys]

    def _capture(self, key: ModelKey) -> TrainingGraph:
        if key not in self._captured:
            self._captured[key] = LayoutPricer().model(key).graph
        return self._captured[key]


def _size(key: ModelKey) -> tuple[int, int, int]:
    return key.micro_batch, key.config.sequence, key.config.vocabulary


def _decoder_size(key: ModelKey) -> Any:
    from alpa_explore.tracing.resizing.resize_decoder import DecoderSize

    return DecoderSize(samples=key.micro_batch, positions=key.config.sequence, words=key.config.vocabulary)


def _sized(key: ModelKey, samples: int, positions: int, words: int) -> ModelKey:
    config: Any = key.config
    return replace(key, micro_batch=samples, config=replace(config, sequence=positions, vocabulary=words))
