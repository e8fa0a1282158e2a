"""Device, software and precision of a measured run, by the names that its source uses.

A rack of GB200 or GB300 has 72 devices on one NVLink and is a node, also where a source counts its trays of 4 as nodes.
Runs use 64 devices of a rack, unless their number is a multiple of 72. Nodes of other sizes than 8 have as much of the
network for each device as a preset's node of 8 gives it; a run need not fill its last node.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from alpa_explore.cluster import Cluster
from alpa_explore.cluster.files import is_file_name
from alpa_explore.cluster.presets import load_preset, preset_names, rack_of
from alpa_explore.cluster.software_profiles import load_software, software_names
from alpa_explore.errors import UnknownNameError, nearest_names
from alpa_explore.uniform_layouts.tuning import RACK_USED
from alpa_explore.validation.runs.nearest import Near, near_device, near_precision, near_software

_FRAMEWORKS = (
    ("megatron-deepspeed (vtrain)", "megatron-v2"),  # without DeepSpeed's own optimizer, and in fp16
    ("megatron-deepspeed", "megatron-deepspeed"),
    ("megatron-lm (sc21)", "megatron-v2"),  # the code of 2021, before Megatron-Core
    ("llm-foundry", "fsdp"),
    ("composer", "fsdp"),
    ("maxtext", "maxtext"),
    ("paxml", "maxtext"),
    ("nanotron", "nanotron"),
    ("torchtitan", "torchtitan"),
    ("deepspeed", "deepspeed"),
    ("primus", "megatron"),
    ("nemo megatron", "megatron-v2"),  # NeMo's name until 2022, before fused attention
    ("automodel", "torchtitan-eager"),  # PyTorch's FSDP2 beneath transformers' models, not Megatron-Core
    ("megatron", "megatron"),
    ("nemo", "megatron"),
    ("fsdp", "fsdp"),
    ("torch.compile", "compiled"),
    ("pytorch", "eager"),
)
"""(part of a framework's name in lower case, software profile), the more special name first."""
_MLPERF, _NVIDIA = "mlcommons/training_results", ("a100", "h100", "h200", "b", "gb")
"""Source of runs of MLPerf, and the presets on which its participants run NVIDIA's implementation."""
DRIVER_MEMORY = ("bigscience",)
"""Parts of the source of rows whose memory is that of nvidia-smi; the others state the framework's own count."""
NETWORKS = (
    (
        "bigscience",
        "a100",
        50e9,
    ),  # Jean Zay: 4 Omni-Path adapters of 100 Gbit/s a node (chronicles of BLOOM's training)
    ("llm-foundry", "a100", 200e9),  # 8 × 200 Gbit/s a node (MosaicML's clusters)
    ("vtrain", "a100", 100e9),  # 800 Gbit/s a node (the default of vTrain's predictor)
)
"""(part of a row's source, beginning of the preset's name, bytes per second of a node's network) where the cluster of a
source is not that of the preset."""
_RELEASE = re.compile(r"\b(?:container|release) (\d\d)\.(\d\d)\b")
_HYBRID = re.compile(r"\bHybridEP\b|\bCUDA graphs\b|\bEP overlap\b")
"""Notes of runs whose host has little to do for a layer of experts."""
_NO_OVERLAP = re.compile(r"\bwithout EP overlap\b")
"""Notes of runs in which nothing runs beside the all-to-alls of experts."""
_NEW_RELEASE = (26, 6)
"""The first of NeMo's containers with the dispatch, fused experts and graphs of Megatron-Core in 2026."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """The cluster of a run."""

    cluster: Cluster
    """With the software of the run."""
    notes: tuple[str, ...] = ()
    """Names of the source in whose place the nearest is priced."""


def machine(
    gpu_type: str,
    framework: str,
    devices: int,
    devices_per_node: int,
    *,
    source: str = "",
    note: str = "",
    device: str | None = None,
    software: str | None = None,
) -> Machine:
    """The machine of a run on so many devices; `device` (a preset or a file) and `software` override its names.

    UnknownNameError, with the nearest names, for a device or software that is not known; ClusterError for more devices
    than a cluster may have.
    """
    on = device_name(gpu_type) if device is None else Near(device, "")
    if software is not None:
        runs = Near(load_software(software).name, "")
    elif _MLPERF in source.lower() and on.name.startswith(_NVIDIA):
        runs = Near("mlperf", "")  # the framework cell names the container
    else:
        runs = software_name(framework, note)
    name, profile = on.name, runs.name
    cluster = Cluster.parse(f"1x1:{name}", software=profile)
    if _NO_OVERLAP.search(note):
        exposed = replace(cluster.software, expert_overlap=0.0)
        cluster = replace(cluster, device=replace(cluster.device, software=exposed))
    if on.memory_bytes is not None:
        cluster = cluster.with_changes(memory_bytes=on.memory_bytes)
    cluster = _slower(cluster, on)
    if on.inside_share != 1.0:
        inside = cluster.inside_node
        cluster = cluster.with_changes(inside_node=replace(inside, bandwidth=inside.bandwidth * on.inside_share))
    rack = None if is_file_name(name) else rack_of(name)
    size = devices_per_node
    if rack is not None:
        size = rack.devices if devices % rack.devices == 0 else RACK_USED
    per_node = size if devices >= size else min(size, 1 << (devices - 1).bit_length())  # the next power of two
    cluster = cluster.with_changes(nodes=-(-devices // size), devices_per_node=per_node)
    for part, family, bandwidth in NETWORKS:
        if device is None and part in source.lower() and cluster.device.name.startswith(family):
            cluster = cluster.with_changes(between_nodes=replace(cluster.between_nodes, bandwidth=bandwidth))
    notes = tuple(near.note for near in (on, runs) if near.note)
    return Machine(cluster=cluster, notes=notes)


def _slower(cluster: Cluster, on: Near) -> Cluster:
    """With the rates of a variant of the preset's device."""
    device = cluster.device
    if on.memory_bandwidth is not None:
        device = replace(device, memory_bandwidth=on.memory_bandwidth)
    if on.rate_share != 1.0:
        efficiency, kernels = device.matmul_efficiency * on.rate_share, device.kernels
        if kernels is not None:
            shares = {dtype: share * on.rate_share for dtype, share in kernels.shares.items()}
            kernels = replace(kernels, shares=shares, attention_share=kernels.attention_share * on.rate_share)
        device = replace(device, matmul_efficiency=efficiency, kernels=kernels)
    return replace(cluster, device=device)


def device_name(gpu_type: str) -> Near:
    """The preset of a source's gpu_type: 'H100-80GB' -> 'h100'; where none has the name the nearest, with a note.
    UnknownNameError where none is near."""
    name = gpu_type.strip().lower().replace(" ", "-").removeprefix("nvidia-")
    for tried in (name, name.removesuffix("-sxm"), name.removesuffix("gb")):
        if tried in preset_names():
            return Near(load_preset(tried)[0].name, "")
    if (near := near_device(gpu_type)) is not None:
        return near
    raise UnknownNameError("Unknown gpu_type", found=repr(gpu_type), remedy=nearest_names(name, preset_names()))


def software_name(framework: str, note: str = "") -> Near:
    """The software profile of a source's framework: 'NeMo 24.07' -> 'megatron', and of a release that its note names:
    'container 25.11' -> 'megatron-2025'; of one that is not known the nearest, with a note. UnknownNameError where none
    is near."""
    name = framework.strip().lower()
    if name in software_names():
        return Near(name, "")
    for part, profile in _FRAMEWORKS:
        if part in name:
            if profile == "torchtitan" and "eager" in f"{name} {note.lower()}":
                return Near("torchtitan-eager", "")
            release = _RELEASE.search(note)
            if profile == "megatron" and release and (int(release[1]), int(release[2])) < _NEW_RELEASE:
                return Near("megatron-2025", "")
            if profile == "megatron" and _HYBRID.search(note):
                return Near("megatron-hybridep", "")
            return Near(profile, "")
    if (near := near_software(framework)) is not None:
        return near
    known = {*software_names(), *(part for part, _ in _FRAMEWORKS)}
    raise UnknownNameError("Unknown framework", found=repr(framework), remedy=nearest_names(name, known))


def driver_memory(source: str) -> bool:
    """Whether a source states memory as the driver shows it (nvidia-smi), and not as the framework allocated it."""
    return any(part in source.lower() for part in DRIVER_MEMORY)


def check_overrides(device: str | None, software: str | None) -> None:
    """UnknownNameError or ClusterError for names that no row could be priced with."""
    if device is not None:
        Cluster.parse(f"1x1:{device}") if is_file_name(device) else load_preset(device)
    if software is not None:
        load_software(software)


@dataclass(frozen=True, slots=True, kw_only=True)
class Precision:
    """Names of torch dtypes."""

    tensors: str
    """Of weights and activations."""
    note: str = ""
    """That this is the nearest to a name that is not known."""
    recipe: str | None = None
    """In which linear layers of blocks run (`cluster.precisions`); attention and everything else keep `tensors`."""


_KNOWN = {
    "bf16": Precision(tensors="bfloat16"),
    "fp16": Precision(tensors="float16"),
    "fp32": Precision(tensors="float32"),
    "tf32": Precision(tensors="float32"),
    "fp16/bf16": Precision(tensors="float16"),  # either; the times are the same
    "fp8": Precision(tensors="bfloat16", recipe="fp8-delayed"),  # the older default of Transformer Engine
    "fp8-cs": Precision(tensors="bfloat16", recipe="fp8-current"),
    "fp8-ds": Precision(tensors="bfloat16", recipe="fp8-delayed"),
    "fp8-mx": Precision(tensors="bfloat16", recipe="mxfp8"),
    "mxfp8": Precision(tensors="bfloat16", recipe="mxfp8"),
    "nvfp4": Precision(tensors="bfloat16", recipe="nvfp4"),
}


def precision_of(name: str) -> Precision:
    """The precision of a source's name, in any case; of one that is not known the nearest, with a note.
    UnknownNameError where none is near."""
    known = _KNOWN.get(name.strip().lower())
    if known is None and (near := near_precision(name)) is not None:
        return replace(_KNOWN[near.name], note=near.note)
    if known is None:
        raise UnknownNameError("Unknown precision", found=repr(name), remedy=nearest_names(name, _KNOWN))
    return known
