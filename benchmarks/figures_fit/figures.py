"""The figures that are fitted: where each lives, where the fit starts, its bounds, and what it means.

Figures of kernels are shared by all devices, those of a generation by its devices, and the others belong to one
software. None belongs to a model, a layout or a source, so they hold for runs that were not measured.

Starts are round: shares and efficiencies as data sheets and published microbenchmarks suggest, launches as a profiler
shows them for a few models. Bounds are what is physically plausible: no product runs above the share of the peak that
cards sustain, and no software launches a kernel in less than 1 µs.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias

Values: TypeAlias = Mapping[str, float]
"""Name of a figure -> its value."""
Range: TypeAlias = tuple[float, float, float]
"""(start, least, most)."""
FAMILIES: Mapping[str, tuple[str, ...]] = {
    "a100": ("a100-40gb", "a100-80gb"),
    "h100": ("h100", "h200"),
    "b200": ("b200", "gb200"),
    "b300": ("b300", "gb300"),
}
"""Generation -> the presets of its devices: the same processors and links, other memories."""
DEVICES = tuple(name for names in FAMILIES.values() for name in names)
RELEASES: Mapping[str, tuple[str, ...]] = {"megatron": ("megatron-2025", "megatron-hybridep")}
"""Software profile -> those of other releases and settings, which have figures of their own for experts alone."""
LOW_PRECISIONS = ("float8_e4m3fn", "float4_e2m1fn_x2")
SHARED = "all"


class Place(enum.Enum):
    """What has the field."""

    DEVICE = "Device"
    KERNELS = "KernelFigures"
    LOW_PRECISION = "KernelFigures.shares"
    """Of all dtypes of less than 16 bits that the device has."""
    INSIDE_NODE = "Link"
    SOFTWARE = "Software"


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One fitted figure."""

    name: str
    """'h100.product_depth': generation, software, or 'all', and the field."""
    place: Place
    field: str
    start: float
    low: float
    high: float
    meaning: str
    shared: bool = True
    """Whether a figure of a software holds for its earlier releases, too."""
    complement: bool = False
    """Whether the field is 1 − the figure: an exposed share has a logarithm, an overlap of 0 has none."""

    @property
    def of_experts(self) -> bool:
        """Whether runs of models with experts alone tell it."""
        return self.field in (*_EXPERTS, "expert_overlap")

    @property
    def scope(self) -> str:
        """Generation, software profile, or 'all'."""
        return self.name.split(".")[0]

    def concerns(self, device: str, software: str) -> bool:
        """Whether runs on a device preset with a software profile depend on it."""
        if self.place is Place.SOFTWARE:
            return software == self.scope or (self.shared and software in RELEASES.get(self.scope, ()))
        return device in (DEVICES if self.scope == SHARED else FAMILIES[self.scope])


def at_start(figures: tuple[Figure, ...]) -> dict[str, float]:
    """The values from which a fit starts."""
    return {figure.name: figure.start for figure in figures}


def all_figures() -> tuple[Figure, ...]:
    """Every figure that is fitted, in the order in which tables show them."""
    return (*_of_generations(), *_of_kernels(), *_of_software())


_GENERATION: Mapping[str, tuple[Range, Range]] = {
    "a100": ((0.74, 0.5, 0.77), (185e9, 140e9, 260e9)),
    "h100": ((0.73, 0.5, 0.82), (340e9, 220e9, 400e9)),
    "b200": ((0.7, 0.5, 0.78), (670e9, 500e9, 850e9)),
    "b300": ((0.7, 0.5, 0.78), (670e9, 500e9, 850e9)),
}
"""Share of the peak of a large product; bandwidth of a device inside a node. No share is above what large products
reach for long under the power limit of the card. Runs of a generation in few precisions or by few programs do not tell
it from what software adds: left alone, a fit says 95 % for A100 and for B300, which no product reaches, and makes up
for it elsewhere; then software that was measured on other cards is promised MFUs that nobody measured."""


def _of_generations() -> Iterator[Figure]:
    for name, (efficiency, inside) in _GENERATION.items():
        rows: tuple[tuple[Place, str, Range, str], ...] = (
            (Place.DEVICE, "matmul_efficiency", efficiency, "share of the bfloat16 peak of a large product"),
            (Place.KERNELS, "product_depth", (30, 5, 120), "k that start and end of a tile cost"),
            (Place.DEVICE, "memory_efficiency", (0.85, 0.6, 0.93), "share of the memory bandwidth"),
            (Place.KERNELS, "attention_share", (0.55, 0.2, 0.85), "share of the bfloat16 peak of fused attention"),
            (Place.INSIDE_NODE, "bandwidth", inside, "bytes a second of a device inside a node"),
        )
        for place, field, (start, low, high), meaning in rows:
            yield Figure(
                name=f"{name}.{field}", place=place, field=field, start=start, low=low, high=high, meaning=meaning
            )
        if name != "a100":
            yield Figure(
                name=f"{name}.low_precision_share",
                place=Place.LOW_PRECISION,
                field="shares",
                start=0.6,
                low=0.3,
                high=0.85,
                meaning="share of the peak of large fp8 and fp4 products",
            )


_KERNELS: Mapping[str, tuple[Range, str]] = {
    "small_tile_exponent": ((0.2, 0.02, 0.8), "how much slower small tiles are"),
    "wave_loss": ((0.3, 0.05, 1), "share of the last, partly filled wave of tiles that is lost"),
    "unaligned_share": ((0.45, 0.15, 1), "rate of products with sides that 8 does not divide"),
    "unaligned_batched_share": ((0.25, 0.05, 1), "the same in a batch of small products"),
    "attention_backward_share": ((0.8, 0.5, 1), "rate of attention backward over forward"),
    "attention_head_exponent": ((0.3, 0.05, 1), "how much slower attention with small heads is"),
    "attention_keys": ((500, 50, 3000), "keys at which attention reaches half of its share"),
}


def _of_kernels() -> Iterator[Figure]:
    for field, ((start, low, high), meaning) in _KERNELS.items():
        yield Figure(
            name=f"{SHARED}.{field}", place=Place.KERNELS, field=field, start=start, low=low, high=high, meaning=meaning
        )
    yield Figure(
        name=f"{SHARED}.launch_seconds",
        place=Place.DEVICE,
        field="launch_seconds",
        start=3e-6,
        low=1e-6,
        high=6e-6,
        meaning="fixed time of a kernel on the device",
    )


_FORWARD_LAUNCH = "host time to launch a kernel of a forward pass"
_BACKWARD_LAUNCH = "the same in a backward pass"
_SOFTWARE: Mapping[str, tuple[Range, str]] = {
    "collective_launch_seconds": ((40e-6, 5e-6, 200e-6), "host time to launch a collective"),
    "microbatch_seconds": ((1e-3, 1e-5, 5e-3), "time of a microbatch beside kernels and launches"),
    "iteration_seconds": ((1e-2, 1e-4, 0.12), "the same of an iteration"),
    "straggler_share": ((0.01, 5e-4, 0.12), "growth of the time for every doubling of the nodes"),
    "shared_node_share": ((0.01, 5e-4, 0.12), "further growth where replicas share nodes"),
    "send_seconds": ((1e-4, 1e-5, 1e-2), "start of a send between stages"),
    "network_share": ((0.7, 0.3, 1.0), "share of a node's network that collectives reach"),
    "send_share": ((0.6, 0.2, 1.0), "share of a device's part of the network that a send reaches"),
    "wait_seconds": ((10e-6, 1e-6, 300e-6), "wait of a collective for every doubling of its ranks"),
    "hop_seconds": ((2e-5, 5e-6, 2e-4), "step of a collective from node to node"),
    "network_decline": ((0.01, 0.001, 0.5), "exponent by which the network's share falls with nodes"),
    "contention": ((0.15, 0.01, 1), "seconds that the device loses for a second of communication beside it"),
    "pace_sharpness": ((5, 1.5, 10), "how little host and device wait for each other"),
    "traffic_factor": ((1.2, 0.5, 3), "memory traffic of pointwise kernels over that of the graph"),
}
"""Of every software."""
_ATTENTION_FACTOR: Range = (1, 0.5, 1.7)
"""Of software with fused attention in most measured runs."""
_EXPOSED: Range = (0.5, 0.02, 1)
"""Of software whose tensor parallelism divides the sequence, so that there is something to overlap."""
_GRAPHS: Mapping[str, Range] = {
    "iteration_seconds": (0.025, 1e-3, 0.12),
    "network_share": (0.85, 0.5, 1.0),
    "network_decline": (0.02, 0.001, 0.2),
}
"""Of software that launches whole passes as graphs: what its runs tell; nothing is launched by the host."""
_EXPERTS: Mapping[str, tuple[Range, str]] = {
    "grouped_factor": ((0.85, 0.4, 1), "rate of its grouped products over that of one large product"),
    "expert_host_seconds": ((2e-3, 5e-4, 4e-3), "host time of a layer of experts in a pass"),
    "expert_rack_host_seconds": ((5e-4, 1e-5, 1.5e-3), "the same where the devices are of a rack"),
}
"""Of software with measured runs of models with experts, for each release: some hundred launches of 5 to 10 µs, less
where graphs launch them."""
_EXPERTS_EXPOSED: Range = (0.5, 0.2, 1)
_RANK_LAUNCH: Range = (1.8e-4, 1e-5, 4e-4)
_SPREAD_RANK: Range = (4e-5, 1e-6, 1e-4)
_LAUNCHES: Mapping[str, tuple[Range, Range]] = {
    "megatron-v2": ((22e-6, 1e-6, 80e-6), (30e-6, 1e-6, 60e-6)),
    "megatron-deepspeed": ((30e-6, 1e-6, 80e-6), (15e-6, 1e-6, 60e-6)),
    "nanotron": ((20e-6, 8e-6, 60e-6), (15e-6, 5e-6, 45e-6)),
    "fsdp": ((12e-6, 1e-6, 80e-6), (10e-6, 1e-6, 60e-6)),
    "megatron": ((10e-6, 1e-6, 80e-6), (6e-6, 1e-6, 60e-6)),
    "maxtext": ((1e-6, 1e-6, 80e-6), (1e-6, 1e-6, 60e-6)),  # one program for a whole step
}
"""Software with measured runs -> host time to launch a kernel of a forward and of a backward pass."""


def _of_software() -> Iterator[Figure]:
    for name, (forward, backward) in _LAUNCHES.items():
        rows: dict[str, tuple[Range, str]] = {
            "forward_launch_seconds": (forward, _FORWARD_LAUNCH),
            "backward_launch_seconds": (backward, _BACKWARD_LAUNCH),
            **_SOFTWARE,
        }
        if name in ("fsdp", "megatron", "maxtext"):
            rows["attention_factor"] = (_ATTENTION_FACTOR, "rate of its fused attention over that of the device")
        if name == "nanotron":
            rows["rank_launch_seconds"] = (_RANK_LAUNCH, "host time of a collective for each rank of a spread pipeline")
            rows["spread_rank_seconds"] = (_SPREAD_RANK, "host time of a collective for each of its ranks across nodes")
        for field, ((start, low, high), meaning) in rows.items():
            yield Figure(
                name=f"{name}.{field}",
                place=Place.SOFTWARE,
                field=field,
                start=start,
                low=low,
                high=high,
                meaning=meaning,
            )
        if name in ("nanotron", "megatron", "maxtext"):
            start, low, high = _EXPOSED
            yield Figure(
                name=f"{name}.exposed_share",
                place=Place.SOFTWARE,
                field="tensor_overlap",
                start=start,
                low=low,
                high=high,
                meaning="share of collectives beside a product that it does not hide",
                complement=True,
            )
    for field, (start, low, high) in _GRAPHS.items():
        yield Figure(
            name=f"mlperf.{field}",
            place=Place.SOFTWARE,
            field=field,
            start=start,
            low=low,
            high=high,
            meaning=_SOFTWARE[field][1],
        )
    yield from _of_experts()


def _of_experts() -> Iterator[Figure]:
    """Of Megatron-Core, and its releases of 2025."""
    for name in ("megatron", "megatron-2025"):
        for field, ((start, low, high), meaning) in _EXPERTS.items():
            yield Figure(
                name=f"{name}.{field}",
                place=Place.SOFTWARE,
                field=field,
                start=start,
                low=low,
                high=high,
                meaning=meaning,
                shared=False,
            )
        start, low, high = _EXPERTS_EXPOSED
        yield Figure(
            name=f"{name}.expert_exposed_share",
            place=Place.SOFTWARE,
            field="expert_overlap",
            start=start,
            low=low,
            high=high,
            meaning="share of the all-to-alls of experts that nothing hides",
            complement=True,
            shared=False,
        )
