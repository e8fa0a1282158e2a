"""The price of a measured run, from a captured graph of its model: values that processes can exchange.

All runs of a `ModelKey` share the captured graph: a model with two periods of blocks, whose work gives that of any
number.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias, TypeVar

from alpa_explore.baselines.block_work import CapturedBlocks, Counted, DecoderWork
from alpa_explore.baselines.layout import Layout, Parts
from alpa_explore.baselines.layout_price import price_layout
from alpa_explore.cluster import Cluster
from alpa_explore.cost.work import in_sequence
from alpa_explore.graph import TrainingGraph
from alpa_explore.uniform_layouts.ranking import overflow
from alpa_explore.uniform_layouts.works import ModelKey, check_dtype, features, own_work
from alpa_explore.validation.runs.machines import Machine

BLOCKS_CAPTURED = 2
"""Periods of blocks of the captured model; the first differs from the others (its input needs no sum of gradients)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRequest:
    """One run: model, machine and layout."""

    key: ModelKey
    on: Machine
    cluster: Cluster
    """That of the machine, in the precision in which it computes linear layers."""
    layout: Layout
    """With the first of `recompute`."""
    parts: Parts
    recompute: tuple[str, ...]
    """'none', 'selective' or 'full'; where the source does not say, the two ends between which the run lies."""
    counts_reserve: bool
    """Whether the measured memory is the driver's figure, with what the software keeps back, and not what the framework
    allocated."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPrice:
    """The answer."""

    seconds: float
    """Of an iteration."""
    bytes: float
    """Of the fullest device, counted as the source counts it: with what the software keeps back, or without."""
    fits: bool
    reason: str = ""
    """Why it does not fit: stage, part, bytes; empty where it does."""
    recompute: str = "none"
    """That was priced: where the run may have had several, the first; `fits` is whether one of them fits."""
    ends: tuple[RunPrice, ...] = ()
    """The prices of all that it may have had, where they are several."""


@dataclass(slots=True)
class CapturedModel:
    """What all runs of a key share: the graphs and the work that were asked for."""

    key: ModelKey
    graphs: dict[tuple[int, int], TrainingGraph] = field(default_factory=dict)
    """By samples and positions."""
    work: dict[tuple[object, ...], DecoderWork] = field(default_factory=dict)

    def graph(self, samples: int, positions: int) -> TrainingGraph:
        """The graph of so many samples of so many positions. CaptureError where it cannot be captured."""
        size = samples, positions
        if size not in self.graphs:
            config = replace(self.key.config, sequence=positions)
            self.graphs[size] = captured_graph(config, samples, self.key.dtype)
        return self.graphs[size]


Answer = TypeVar("Answer")
"""What a pricer says of a run: a `RunPrice`, or the work that a fit prices many times."""
Pricer: TypeAlias = Callable[[CapturedModel, RunRequest], Answer]
"""(what all runs of a key share, a run) -> its answer, or an AlpaExploreError: then the row is refused with that
reason. Processes get a copy, so it is a function of a module, or a small value."""


def price_run(model: CapturedModel, run: RunRequest) -> RunPrice:
    """By the cost model of the planner, the first recomputation that the run may have had; it fits if one of them does.
    OptionError for a device without the precision."""
    check_dtype(run.cluster.device, model.key.dtype)
    first, *others = (_price(model, run, recompute) for recompute in run.recompute)
    if not others:
        return first
    fits = first.fits or any(other.fits for other in others)
    return replace(first, fits=fits, reason="" if fits else first.reason, ends=(first, *others))


def _price(model: CapturedModel, run: RunRequest, recompute: str) -> RunPrice:
    room = run.cluster.device.memory_bytes
    price = price_layout(work_of(model, run), run.cluster, replace(run.layout, recompute=recompute), run.parts)
    fits = price.bytes <= room
    reserve = 0.0 if run.counts_reserve else dict(price.parts_bytes)["reserve"]
    return RunPrice(
        seconds=price.seconds,
        bytes=price.bytes - reserve,
        fits=fits,
        reason="" if fits else overflow(price, room),
        recompute=recompute,
    )


def captured_graph(config: Any, samples: int, dtype: str) -> TrainingGraph:
    """The graph of a config of `models.configs`. CaptureError where it cannot be captured."""
    from alpa_explore.models.factory import make_inputs, make_module
    from alpa_explore.tracing.capture import capture

    module, inputs = make_module(config, "meta", 0), make_inputs(config, samples, "meta", 0)
    return capture(module, inputs, name=type(config).__name__, precision=dtype)


def work_of(model: CapturedModel, run: RunRequest) -> DecoderWork:
    """The work of a microbatch under the run's degrees and software."""
    key = run_features(run)
    if key not in model.work:
        model.work[key] = _work(model, run)
    return model.work[key]


def run_features(run: RunRequest) -> tuple[object, ...]:
    """What of a run decides on its work, beside the model and the device."""
    at = run.layout
    degrees = at.tensor, at.context, at.expert, at.expert_tensor
    return (*degrees, run.cluster.devices_per_node, *features(run.cluster.device))


def _work(model: CapturedModel, run: RunRequest) -> DecoderWork:
    key, cluster, at = model.key, run.cluster, run.layout
    samples, positions, blocks = key.micro_batch, key.config.sequence, CapturedBlocks.of_period(key.period)
    context, tensor, expert = at.context, at.tensor, at.expert
    if not key.routed:
        work = own_work(model.graph(samples, positions), cluster, (1, context, tensor), blocks)
    elif at.expert_tensor == tensor:
        work = own_work(model.graph(samples * expert, positions), cluster, (expert, context, tensor), blocks)
    else:
        # Devices that share other products have tokens of their own in layers of experts.
        own = max(positions * at.expert_tensor // (context * tensor), 1)
        work = own_work(model.graph(samples, positions), cluster, (1, context, tensor), blocks, counted=Counted.OTHERS)
        inside = own_work(
            model.graph(samples * expert, own), cluster, (expert, 1, at.expert_tensor), blocks, counted=Counted.EXPERTS
        )
        both = zip(work.blocks, inside.blocks, strict=True)
        work = replace(work, blocks=tuple(in_sequence(outside, experts) for outside, experts in both))
    for _ in range(key.predicted_ahead):
        work = replace(work, head=in_sequence(work.head, work.blocks[-1], work.head))
    return work
