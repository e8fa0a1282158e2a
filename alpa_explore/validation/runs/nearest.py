"""What a source calls by a name that is not known, by the nearest that is, with a note: devices, software, precisions,
recomputation.

A device is near where its name has all parts of a known one ('H100-96GB-HBM2e-500W'), or where it is a variant of one
(`_VARIANTS`); its memory is then what the name says. Software is near where it divides a model in the same way.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from alpa_explore.cluster.presets import load_preset, preset_names


class Near(NamedTuple):
    """The known name that is used."""

    name: str
    note: str
    """Empty where it is the same thing."""
    memory_bytes: int | None = None
    """Of a device whose memory is another than that of the preset."""
    inside_share: float = 1.0
    """Bandwidth inside a node over that of the preset."""
    rate_share: float = 1.0
    """Rate of products and attention over that of the preset."""
    memory_bandwidth: float | None = None
    """Of a device whose memory is slower than that of the preset, in bytes per second."""


_VARIANTS = {
    "a800": ("a100", 400 / 600),  # NVLink of 400 GB/s (NVIDIA A800 data sheet), A100: 600
    "gh200": ("h100", 1.0),  # the same processor; 96 GB, or 144 GB of faster memory
    "mi300": ("mi300x", 1.0),
    "mi300a": ("mi300x", 1.0),
    "mi350x": ("mi355x", 1.0),
    "mi355": ("mi355x", 1.0),
    "mi325": ("mi325x", 1.0),
    "b100": ("b200", 1.0),
}
"""Part of a device's name -> the part of a known one, and the share of its bandwidth inside a node."""
_FORM = re.compile(r"(.*\d[a-z]?)(?:sxm\d?|pcie|nvl\d*|oam)")
"""A form factor that is written on to the name: 'h100sxm5'."""
_SIZE = re.compile(r"(\d+)g(?:i?b)?")
_WATTS = re.compile(r"(\d+)w")
_OWN_WATTS = {"a100-40gb": 400, "a100-80gb": 400, "h100": 700, "h200": 700, "h800": 700, "b200": 1000}
"""Power limit of a preset's device, by its data sheet."""
_OF_POWER = 0.75
"""Exponent with which the rate of products falls with a lower power limit: between 1/3, where frequency and voltage
fall together, and 1, where the voltage is at its least. So torchtitan's runs on H100 of 500 W: 0.78 of the rate."""
_SLOWER = {("h100", "hbm2e"): 2.4e12}
"""(preset, kind of memory in a name) -> its bytes per second."""
_SAME = re.compile(r"sxm\d?|oam|hbm\d\w?|nvidia|amd|tesla|instinct|geforce|dgx|hgx|nvl72|\d+g(?:i?b)?")
"""Parts of a name that make no other device of it."""
_OTHER_SIZE = 0.05
"""Memory that differs by less is the same memory, counted otherwise."""

_SOFTWARE = {
    "deepspeed": r"internevo|internlm|zero",
    "megatron-deepspeed": r"gpt-neox",
    "megatron": r"mindspeed|transformer engine|colossal",
    "nanotron": r"picotron",
    "maxtext": r"jax|levanter|t5x",
    "compiled": r"thunder",
    "fsdp": r"trl|accelerate|transformers|hugging|lightning|litgpt|torchtune|axolotl|atorch|veomni|olmo|fairs",
    "eager": r"ddp|torch",
}
"""The profile of software that trains in the nearest way -> pattern in a framework's name in lower case."""

_PRECISIONS = (
    (r"nvfp4|fp4", "nvfp4"),
    (r"mxfp8|fp8.*mx", "mxfp8"),
    (r"fp8.*(cs|current|tensor)", "fp8-cs"),
    (r"fp8|e4m3|float8", "fp8"),
    (r"bf16|bfloat16", "bf16"),
    (r"fp16|float16|half", "fp16"),
    (r"tf32", "tf32"),
    (r"fp32|float32|single", "fp32"),
    (r"mixed|amp|not stated|unknown|16", "bf16"),
)
"""(pattern in a source's precision in lower case, the known name), the more special first."""

_NONE = frozenset({"none", "no", "false", "off", "0", "disabled", "without"})
_FULL = frozenset({"full", "all", "true", "yes", "on", "uniform", "every", "block"})
_SILENT = frozenset({"", "not stated", "unknown", "unstated", "?", "n/a"})
_FILLING = frozenset(
    {"recompute", "recomputation", "activation", "activations", "checkpointing", "checkpoint", "gradient"}
)
_FILLING |= {"granularity", "method", "ac", "layers"}
_CORE = frozenset({"core_attn", "core_attention", "attention", "attn"})
"""What Megatron's selective recomputation computes again, which is what 'selective' alone means."""
_ENDS = ("none", "full")


def near_device(gpu_type: str) -> Near | None:
    """The preset that is nearest to a source's gpu_type, from what its name says; None where none is near."""
    parts = [p for p in re.split(r"[^a-z0-9]+", gpu_type.lower()) if p]
    parts = [m[1] if (m := _FORM.fullmatch(part)) else part for part in parts]
    share, named = 1.0, set(parts)
    for part in parts:
        if part in _VARIANTS and not named & set(preset_names()):
            instead, share = _VARIANTS[part]
            named = named - {part} | {instead}
    sizes = [int(m[1]) for part in parts if (m := _SIZE.fullmatch(part))]
    if "gh200" in parts and any(96 < size <= 144 for size in sizes):  # 480 GB are the host's
        named = named - {"h100"} | {"h200"}
    known = {name: set(name.split("-")) for name in preset_names() if set(name.split("-")) <= named}
    if not known:
        return None
    best = max(known, key=lambda n: len(known[n]))
    name, memory = load_preset(best)[0].name, load_preset(best)[0].memory_bytes
    other = next((size * 10**9 for size in sizes if _is_other(size, memory)), None)
    if share == 1.0 and other is None and all(p in known[best] or _SAME.fullmatch(p) for p in parts):
        return Near(name, "")
    watts = next((int(m[1]) for part in parts if (m := _WATTS.fullmatch(part))), None)
    own = _OWN_WATTS.get(name)
    rate = min(1.0, (watts / own) ** _OF_POWER) if watts and own else 1.0
    bandwidth = next((_SLOWER[name, part] for part in parts if (name, part) in _SLOWER), None)
    note = f"{gpu_type} is priced as {name}, the nearest device that is known"
    if share != 1.0:
        note += f", with {share:.0%} of its bandwidth inside a node"
    if other is not None:
        note += f", with {other // 10**9} GB of memory"
    if rate != 1.0:
        note += f", with {rate:.0%} of its rate under a limit of {watts} W"
    if bandwidth is not None:
        note += f", with memory of {bandwidth / 1e12:.1f} TB/s"
    return Near(name, note, other, share, rate, bandwidth)


def _is_other(size: int, memory: int) -> bool:
    """Whether a size in GB, or in GiB, is that of other memory on a device, and of it alone."""
    ratios = size * 10**9 / memory, size * 2**30 / memory
    return 0.5 < ratios[0] < 2.5 and all(abs(ratio - 1) > _OTHER_SIZE for ratio in ratios)


def near_software(framework: str) -> Near | None:
    """The profile of software that trains in the way nearest to a framework's; None where none is near."""
    name = framework.lower()
    for profile, pattern in _SOFTWARE.items():
        if re.search(pattern, name):
            return Near(profile, f"{framework} is priced as {profile}, the nearest software that is known")
    return None


def near_precision(precision: str) -> Near | None:
    """The known name of a precision that is nearest to a source's; None where none is near."""
    for pattern, name in _PRECISIONS:
        if re.search(pattern, precision.lower()):
            return Near(name, f"precision {precision!r} is priced as {name}")
    return None


def is_silent(text: str) -> bool:
    """Whether a source says in so many words that it does not know."""
    return " ".join(text.lower().split()) in _SILENT


def recomputed(text: str) -> tuple[tuple[str, ...], str]:
    """What a run computes again, from a source's words: one of 'none', 'selective' and 'full', or the two ends between
    which it lies, and a note on these; the note is empty where the source says it."""
    words = " ".join(text.lower().split())
    if is_silent(words):
        return _ENDS, "recomputation is not stated: none and full are priced"
    plain = re.sub(r"core[ -]", "core_", words)
    parts = {part for part in re.split(r"[^a-z0-9_]+", plain) if part} - _FILLING
    if parts and parts <= _NONE:
        return ("none",), ""
    if parts <= _FULL and parts != {"block"}:  # 'checkpointing' alone is of every block
        return ("full",), ""
    if parts <= {"selective", *_CORE}:
        return ("selective",), ""
    ends = ("selective", "full") if parts & _CORE else _ENDS
    return ends, f"recomputation {text!r} lies between {ends[0]} and {ends[1]}: both are priced"
