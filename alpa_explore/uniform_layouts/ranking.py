"""The answer: every layout with its seconds and bytes, the fastest that fits first."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from alpa_explore import units
from alpa_explore.accuracy.error_band import Band, Quantity, error_band, is_tight
from alpa_explore.accuracy.likeness import Case, case, overhead_share
from alpa_explore.baselines.block_work import DecoderWork
from alpa_explore.baselines.layout import RECOMPUTATION, Axis, Layout
from alpa_explore.baselines.layout_price import LayoutPrice, LayoutPricer, counted_microbatches, part_seconds
from alpa_explore.cluster import Cluster
from alpa_explore.errors import OptionError
from alpa_explore.numerics.arrays import Floats
from alpa_explore.uniform_layouts import tuning
from alpa_explore.uniform_layouts.stages import blocks_of_parts, idle_ranks, pipeline_parts
from alpa_explore.uniform_layouts.works import Works


@dataclass(frozen=True, slots=True, kw_only=True)
class PricedLayout:
    """A layout and what it is predicted to take."""

    layout: Layout
    seconds: float
    """Of an iteration."""
    bytes: float
    """Of the fullest device, with what the software keeps back."""
    reason: str
    """Why it does not run: stage, bytes, and what takes most of them; empty where it does."""
    missing_bytes: float
    """By which it exceeds the memory of a device; 0 where it fits."""
    tokens_per_second: float
    """Of all devices together."""
    mfu: float
    """Share of the devices' peak that the model's FLOPs make; recomputed ones are not counted."""
    once_seconds: float
    """Of them those in which the pipeline fills and drains, gradients are summed, and weights updated."""
    parts_bytes: tuple[tuple[str, float], ...]
    """Of the fullest device."""
    blocks: tuple[int, ...]
    """Of each part of the pipeline."""
    tight: bool = False
    """Whether it fits, but with the mean error of its bytes might not, in what a device really offers."""

    @property
    def fits(self) -> bool:
        """Whether it runs."""
        return not self.reason

    @property
    def words(self) -> str:
        """The name of the layout."""
        return self.layout.words

    @property
    def order(self) -> tuple[bool, bool, float]:
        """Sorts the fastest that fits with room to spare first, then the tight ones, and what does not fit by how much
        it lacks."""
        return (not self.fits, self.tight, self.seconds if self.fits else self.missing_bytes)


def seconds_beside(one: PricedLayout, other: PricedLayout) -> dict[str, float]:
    """Part of an iteration -> by how many seconds it is longer in one layout than in another."""
    once = one.once_seconds - other.once_seconds
    passes = one.seconds - other.seconds - once
    return {"passes of microbatches": passes, "filling the pipeline, gradient sync and update": once}


@dataclass(frozen=True, slots=True, kw_only=True)
class Layouts:
    """All uniform layouts of a model on a cluster, in the order of `PricedLayout.order`."""

    model: str
    cluster: Cluster
    global_batch: int
    """Samples of an iteration."""
    sequence: int
    """Tokens of a sample."""
    precision: str
    """As the user gave it, or the dtype of tensors."""
    ranked: tuple[PricedLayout, ...]
    sizes: str = ""
    """Of the model, as measured runs name them (`Sizes.sizes`)."""
    case: Case | None = None
    """What the errors of its layouts depend on, but for their own degrees and times; None where that is not known."""
    whole: bool = True
    """Whether all are there; not where the enumeration was cancelled."""
    refused: tuple[str, ...] = ()
    """Degrees in which the model cannot be divided, each with the reason; none of the layouts has them."""
    larger: Layouts | None = None
    """Where none fits: the layouts on the fewest nodes of this kind, doubled in turn, on which one does; None where
    that is not known or no number of them is enough."""
    on_faster_links: PricedLayout | None = None
    """The fastest where the links between nodes (of one node: inside it) have twice the bandwidth; None where none
    fits, not all are there, or the links have more levels."""

    def __repr__(self) -> str:
        # The generated repr of a thousand layouts would fill a notebook.
        best = self.best
        fastest = "" if best is None else f", the fastest {best.words}: {units.seconds(best.seconds)}"
        return f"Layouts({self.model!r}, {len(self.ranked):,}, {len(self.fitting):,} of them fit{fastest})"

    @property
    def best(self) -> PricedLayout | None:
        """The fastest that fits with room to spare; where none does, the fastest that fits."""
        return self.ranked[0] if self.ranked and self.ranked[0].fits else None

    @property
    def fitting(self) -> tuple[PricedLayout, ...]:
        """Those that fit, the fastest first; the tight ones last."""
        return tuple(priced for priced in self.ranked if priced.fits)

    @property
    def fits_on(self) -> Cluster | None:
        """Where none fits: the cluster of `larger`."""
        return None if self.larger is None else self.larger.cluster

    @property
    def nearest(self) -> PricedLayout | None:
        """Where none fits: the one that lacks least."""
        return self.ranked[0] if self.ranked and not self.ranked[0].fits else None

    def values(self, axis: Axis) -> tuple[Any, ...]:
        """The values of an axis that some layout has, ascending."""
        found = {getattr(priced.layout, axis) for priced in self.ranked}
        return tuple(sorted(found, key=RECOMPUTATION.index if axis == "recompute" else None))

    def where(self, values: Mapping[Axis, Any]) -> tuple[PricedLayout, ...]:
        """The layouts with these values of these axes, in order."""
        return tuple(p for p in self.ranked if all(getattr(p.layout, axis) == v for axis, v in values.items()))

    def find(self, layout: Layout) -> PricedLayout | None:
        """This layout among them."""
        return next((priced for priced in self.ranked if priced.layout == layout), None)

    def band(self, priced: PricedLayout, quantity: Quantity) -> Band | None:
        """The error band of the seconds or bytes of one of them; None where no run like it was measured."""
        if self.case is None:
            return None
        share = overhead_share(self.cluster, priced.layout.microbatches, priced.seconds)
        own = replace(self.case, context=priced.layout.context > 1, overhead=share, mfu=priced.mfu)
        return error_band(own, quantity)

    def rank(self, priced: PricedLayout) -> int:
        """Its place, from 1."""
        return self.ranked.index(priced) + 1


def ranked(priced: Iterable[PricedLayout]) -> tuple[PricedLayout, ...]:
    """In the order of `PricedLayout.order`."""
    return tuple(sorted(priced, key=lambda one: one.order))


class Prices:
    """Prices the layouts of a model on one cluster, from their works. Layouts share the times of parts. Those that
    differ in the number of microbatches alone share all but the sum, so another global batch takes milliseconds."""

    def __init__(self, cluster: Cluster, works: Works) -> None:
        self.cluster, self.works = cluster, works
        self._peak = cluster.devices * cluster.device.peak(works.dtype)
        self._times: dict[tuple[object, ...], tuple[DecoderWork, Floats]] = {}
        self._costs: dict[Layout, LayoutPrice] = {}
        self._bands: dict[bool, Band | None] = {}
        assert works.structure is not None, "works are prepared first"
        self.structure = works.structure
        self.case = case(
            cluster,
            precision=works.dtype,
            experts=self.structure.experts > 1,
            token_flops=self.structure.flops / self.structure.tokens,
        )
        """What the errors of layouts depend on, but for their own degrees and times."""

    def price(self, layout: Layout) -> PricedLayout:
        """The price of one layout whose work was prepared."""
        counted = counted_microbatches(layout.pipeline, layout.microbatches)
        shape = replace(layout, microbatches=counted)
        if shape not in self._costs:
            self._costs[shape] = self._costs_of(shape)
        price = replace(self._costs[shape], microbatches=layout.microbatches)
        room = self.cluster.device.memory_bytes
        samples = layout.data * layout.microbatch * layout.microbatches
        tokens, flops = samples * self.structure.tokens, samples * self.structure.flops
        reason = self._reason(layout, price, room)
        return PricedLayout(
            layout=layout,
            seconds=price.seconds,
            bytes=price.bytes,
            reason=reason,
            tight=not reason and is_tight(price.bytes, room, self._band_of_bytes(layout.context > 1)),
            missing_bytes=max(price.bytes - room, 0.0),
            tokens_per_second=tokens / price.seconds,
            mfu=flops / (price.seconds * self._peak),
            once_seconds=price.once_seconds,
            parts_bytes=price.parts_bytes,
            blocks=blocks_of_parts(self.structure, layout.pipeline, layout.chunks, self.cluster.software.name),
        )

    def _band_of_bytes(self, context: bool) -> Band | None:
        """The error band of the bytes of a layout, on which its degrees have no other influence."""
        if context not in self._bands:
            self._bands[context] = error_band(replace(self.case, context=context), "bytes")
        return self._bands[context]

    def _costs_of(self, layout: Layout) -> LayoutPrice:
        work = self.works.of(self.cluster, layout)
        if isinstance(work, OptionError):
            raise work
        shared = (id(work), layout.pipeline > 1, layout.context, layout.expert, layout.expert_tensor, layout.recompute)
        if shared not in self._times:
            self._times[shared] = work, part_seconds(work, self.cluster, layout)  # which keeps the work, and so its id
        parts = pipeline_parts(self.structure, self.structure.kinds, layout, self.cluster.software.name)
        return LayoutPricer(work, self.cluster, layout, parts, self._times[shared][1]).price()

    def _reason(self, layout: Layout, price: LayoutPrice, room: float) -> str:
        software = self.cluster.software
        if idle := idle_ranks(self.structure, layout.pipeline, software.name):
            return f"{idle} of {layout.pipeline} stages get no part of the model, and {software.label} stops"
        return overflow(price, room) if price.bytes > room else ""


class ModelPrices:
    """The works of a model's layouts, and prices on the clusters that were asked about last."""

    def __init__(self, works: Works) -> None:
        self.works = works
        self._on: dict[Cluster, Prices] = {}
        self._lock = threading.Lock()

    def on(self, cluster: Cluster) -> Prices:
        """The prices on a cluster, which know what was priced there before."""
        with self._lock:
            prices = self._on.pop(cluster, None) or Prices(cluster, self.works)
            self._on[cluster] = prices
            for oldest in list(self._on)[: -tuning.KEPT_CLUSTERS]:
                del self._on[oldest]
            return prices


def overflow(price: LayoutPrice, room: float) -> str:
    """Why a layout does not fit: stage, bytes, and what takes most of them."""
    name, most = max(price.parts_bytes, key=lambda part: part[1])
    return (
        f"stage {price.fullest_stage} needs {units.bytes_(price.bytes)} of {units.bytes_(room)} on a device, "
        f"{units.bytes_(most)} of them for {name}"
    )


def memory_words(priced: PricedLayout, cluster: Cluster) -> str:
    """'61.2 of 80 GiB'."""
    return f"{units.bytes_(priced.bytes)} of {units.bytes_(cluster.device.memory_bytes)}"
