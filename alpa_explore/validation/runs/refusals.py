"""Cells of a file of measured runs -> values, and what is wrong with a run, in words.

There are two sets of columns: the one in which public measurements were collected (`COLUMNS`), and that of vTrain's
tables (`VTRAIN`), which lack what all of vTrain's runs share; it is filled in. A missing cell is None. A cell that is
not what its column holds is a fault of the row.

A run is refused where it is missing a column, its columns contradict each other, no framework would run it, or it needs
what is not modelled yet. Frameworks do run, and so are priced: stages of unequal numbers of blocks, heads of keys and
values that are fewer than the tensor-parallel devices (they are replicated), a vocabulary that tp does not divide (it
is padded), tensor parallelism across nodes.
"""

from __future__ import annotations

import enum
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from alpa_explore import units

WHOLE = (
    *("layers", "hidden", "heads", "kv_heads", "ffn", "vocab", "experts", "topk", "seq"),
    *("global_batch", "micro_batch", "grad_accum", "gpus", "gpus_per_node", "tp", "pp", "vp", "dp", "cp", "ep"),
)
"""Columns of whole numbers of 1 or more."""
OTHERS = ("zero_stage", "tied")
"""Columns of whole numbers of 0 or more."""
MOST: Mapping[str, int] = {
    **{"layers": 2_000, "hidden": 2**20, "heads": 2**16, "kv_heads": 2**16, "ffn": 2**24, "vocab": 10**7},
    **{"experts": 100_000, "topk": 100_000, "seq": 2**27, "zero_stage": 3, "tied": 1},
    **dict.fromkeys(("global_batch", "micro_batch", "grad_accum"), 10**9),
    **dict.fromkeys(("gpus", "gpus_per_node", "tp", "dp", "cp", "ep"), 2**24),
    **dict.fromkeys(("pp", "vp"), 2_000),
}
"""The most that a column of whole numbers may hold: far more than any run has had, or the bounds of models elsewhere. A
mistyped number is refused by its name, before anything of that size is built."""
REAL = ("params_b", "tokens_s_gpu", "tflops_gpu", "mfu_pct", "memory_gib", "step_s")
"""Columns of numbers above 0."""
TEXT = ("model", "gpu_type", "recompute", "precision", "schedule", "status", "framework", "source", "license", "note")
COLUMNS = (*WHOLE, *OTHERS, *REAL, *TEXT)

VTRAIN = {
    "# GPUs": "gpus",
    "global batch": "global_batch",
    "micro batch": "micro_batch",
    "hidden size": "hidden",
    "attention heads": "heads",
    "# layers": "layers",
    "sequence length": "seq",
    "tensor parallelism": "tp",
    "data parallelism": "dp",
    "pipeline parallelism": "pp",
}
"""vTrain's column -> ours."""
VTRAIN_MEASURED = "iteration time (ms)"
_VTRAIN_DERIVED = "Parameters (billion)"
"""Follows from the other columns."""
_VTRAIN_SHARED = {
    "model": "GPT",
    "vocab": "50257",
    "tied": "1",
    "gpu_type": "A100-80GB",
    "gpus_per_node": "8",
    "zero_stage": "0",
    "recompute": "full",
    "precision": "fp16",
    "schedule": "1f1b",
    "status": "ok",
    "framework": "Megatron-DeepSpeed (vTrain)",
    "source": "vTrain",
    "license": "MIT",
}
"""What the runs of vTrain's tables share: Megatron-DeepSpeed on nodes of 8 A100-80GB, all blocks recomputed."""
_MOST = 1e15


@dataclass(frozen=True, slots=True, kw_only=True)
class Cells:
    """The cells of one row."""

    whole: Mapping[str, int | None]
    """By column of `WHOLE` or `OTHERS`."""
    real: Mapping[str, float | None]
    text: Mapping[str, str]
    """Empty where the row does not say."""
    faults: tuple[str, ...]
    """Cells that are not what their column holds."""


def is_vtrain(header: Sequence[str]) -> bool:
    """Whether a header is that of vTrain's tables."""
    return len(set(header) & set(VTRAIN)) > len(set(header) & set(COLUMNS))


def known_columns(header: Sequence[str]) -> set[str]:
    """The columns of a header that either set has."""
    return set(header) & {*COLUMNS, *VTRAIN, VTRAIN_MEASURED}


def unknown_columns(header: Sequence[str]) -> list[str]:
    """The named columns of a header that neither set has, in order: what they say is not taken."""
    return [name for name in header if name and name != _VTRAIN_DERIVED and not known_columns([name])]


def parse(header: Sequence[str], values: Sequence[str], *, vtrain: bool) -> Cells:
    """The values of a row; `header` and `values` are equally long."""
    cells = {name: value.strip() for name, value in zip(header, values, strict=True)}
    faults: list[str] = []
    if vtrain:
        milliseconds = cells.get(VTRAIN_MEASURED, "")
        cells = {**_VTRAIN_SHARED, **{ours: cells.get(theirs, "") for theirs, ours in VTRAIN.items()}}
        if milliseconds:
            seconds = _number(milliseconds) / 1e3
            cells["step_s"] = milliseconds if math.isnan(seconds) else repr(seconds)
    whole = {name: _whole(cells, name, 1, faults) for name in WHOLE}
    whole |= {name: _whole(cells, name, 0, faults) for name in OTHERS}
    real: dict[str, float | None] = {}
    for name in REAL:
        text = cells.get(name, "")
        value = _number(text) if text else None
        if value is not None and not 0 < value < _MOST:
            faults.append(f"{name} is {text!r:.40}, not a number above 0")
            value = None
        real[name] = value
    return Cells(whole=whole, real=real, text={name: cells.get(name, "") for name in TEXT}, faults=tuple(faults))


def _whole(cells: Mapping[str, str], name: str, least: int, faults: list[str]) -> int | None:
    text = cells.get(name, "")
    if not text:
        return None
    value = _number(text)
    if value.is_integer() and least <= value <= MOST[name]:
        return int(value)
    faults.append(f"{name} is {text!r:.40}, not a whole number from {least} to {MOST[name]:,}")
    return None


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan


MOST_TENSOR_BYTES = 2**60
"""Of one tensor of a microbatch. torch counts bytes by 64 bits, for some operators of several tensors together."""
IDLE = 2
"""Where the framework accepts stages without any block: stages for each block (and end). Sweeps over degrees have runs
with pp 32 for 16 layers; what has more failed."""
EMPTY_STAGES = 2
"""Megatron and DeepSpeed can count the embedding and the LM head as blocks, so two stages may have no other."""

_ADAPTERS = re.compile(r"\bq?lora\b", re.IGNORECASE)


class Kind(enum.Enum):
    """Why a row is refused; the value is the heading under which such rows are listed."""

    CELL = "a cell is not what its column holds"
    FROZEN = "only some weights are trained"
    MISSING = "a column is missing"
    CONTRADICTION = "columns contradict each other"
    IMPOSSIBLE = "no framework runs this layout"
    MACHINE = "the device or the software is not known"
    PRICING = "the cost model cannot price it"


def cells_faults(cells: Cells) -> tuple[Kind, str] | None:
    """The first reason why the cells cannot be a run, before anything is derived from them."""
    number = cells.whole.get
    if _ADAPTERS.search(cells.text["model"]) or _ADAPTERS.search(cells.text["note"]):
        return Kind.FROZEN, "LoRA: with frozen weights there are fewer gradients and less optimizer state"
    if cells.faults:
        return Kind.CELL, "; ".join(cells.faults)
    missing = [name for name in ("layers", "hidden", "heads", "seq") if number(name) is None]
    missing += [name for name in ("tp", "pp") if number(name) is None]
    missing += [name for name in ("gpu_type", "framework") if not cells.text[name]]
    if number("vocab") is None:
        missing.append("vocab")
    if (number("experts") or 1) > 1:
        missing += [name for name in ("topk", "ffn") if number(name) is None]
    if missing:
        return Kind.MISSING, f"{_listed(missing)} {'is' if len(missing) == 1 else 'are'} not given"
    if (number("vp") is None) and cells.text["schedule"].startswith("interleaved"):
        return Kind.MISSING, "vp is not given, but the schedule is interleaved"
    return None


def layout_faults(n: Mapping[str, int]) -> tuple[Kind, str] | None:
    """The first reason why complete numbers cannot be a run."""
    degrees = [name for name in ("tp", "cp", "pp", "dp") if name != "cp" or n["cp"] > 1]
    product = math.prod(n[name] for name in degrees)
    if product != n["gpus"]:
        factors = " × ".join(str(n[name]) for name in degrees)
        return Kind.CONTRADICTION, f"{' × '.join(degrees)} = {factors} = {product}, but gpus is {n['gpus']}"
    if not 1 <= n["etp"] <= MOST["tp"]:
        return Kind.CELL, f"ETP is {n['etp']:.3g}, not a whole number from 1 to {MOST['tp']:,}"
    if faults := _experts_faults(n):
        return faults
    if n["seq"] % n["cp"]:
        return Kind.IMPOSSIBLE, f"cp {n['cp']} does not divide seq {n['seq']}"
    for what, size, parts, count in (
        ("hidden", n["hidden"], "heads", n["heads"]),
        ("heads", n["heads"], "kv_heads", n["kv_heads"]),
        ("heads", n["heads"], "tp", n["tp"]),
        ("ffn", n["ffn"], "tp", n["tp"]),
    ):
        if size % count:
            return Kind.IMPOSSIBLE, f"{parts} {count} does not divide {what} {size}"
    if n["kv_heads"] % n["tp"] and n["tp"] % n["kv_heads"]:
        return Kind.IMPOSSIBLE, f"tp {n['tp']} divides neither kv_heads {n['kv_heads']} nor is a multiple of it"
    samples = n["dp"] * n["micro_batch"]
    if n["global_batch"] % samples:
        return (
            Kind.CONTRADICTION,
            f"global_batch {n['global_batch']} is not a multiple of dp × micro_batch = {n['dp']} × {n['micro_batch']}",
        )
    if n["grad_accum"] * samples != n["global_batch"]:
        return (
            Kind.CONTRADICTION,
            f"grad_accum is {n['grad_accum']}, but global_batch / (dp × micro_batch) is {n['global_batch'] // samples}",
        )
    if n["vp"] > 1 and n["pp"] == 1:
        return Kind.IMPOSSIBLE, f"vp is {n['vp']} without a pipeline"
    return _size_fault(n)


def _size_fault(n: Mapping[str, int]) -> tuple[Kind, str] | None:
    """Whether a tensor of a microbatch is larger than any that software can describe."""
    wide = max(n["heads"] * n["seq"], n["hidden"], n["ffn"] * n.get("topk", 1), n["vocab"])
    size = 8 * max(n["micro_batch"] * n["seq"] * wide, n["hidden"] * n["ffn"] * n.get("experts", 1))
    if size <= MOST_TENSOR_BYTES:
        return None
    return Kind.IMPOSSIBLE, f"micro_batch {n['micro_batch']} × seq {n['seq']} has a tensor of {units.bytes_(size)}"


def _experts_faults(n: Mapping[str, int]) -> tuple[Kind, str] | None:
    """The first reason why experts cannot be divided so. Megatron numbers the devices of a stage anew for them."""
    experts, devices = n.get("experts", 1), n["tp"] * n["cp"] * n["dp"]
    if n["ep"] > 1 and experts == 1:
        return Kind.CONTRADICTION, f"ep is {n['ep']} without experts"
    if experts % n["ep"]:
        return Kind.IMPOSSIBLE, f"ep {n['ep']} does not divide {experts} experts"
    if devices % (n["ep"] * n["etp"]):
        each = f"ep {n['ep']}" + (f" × etp {n['etp']}" if n["etp"] > 1 else "")
        return Kind.IMPOSSIBLE, f"{each} does not divide the tp × cp × dp = {devices} devices of a stage"
    if experts > 1 and n["topk"] > experts:
        return Kind.CONTRADICTION, f"topk is {n['topk']}, but there are {experts} experts"
    return None


def stage_faults(layers: int, pipeline: int, chunks: int, *, idle_stages: bool) -> tuple[Kind, str] | None:
    """Why a pipeline has too many stages for its blocks; `idle_stages` where the framework accepts empty ones."""
    places = pipeline * chunks
    if places <= (layers + EMPTY_STAGES) * (IDLE if idle_stages and chunks == 1 else 1):
        return None
    return Kind.IMPOSSIBLE, f"{layers} layers for pp × vp = {pipeline} × {chunks} = {places} parts of the pipeline"


def _listed(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
