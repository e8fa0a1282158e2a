"""Cells of a file of measured runs -> values, for two sets of columns: the one in which public measurements were
collected (`COLUMNS`), and that of vTrain's tables (`VTRAIN`), which lack what all of vTrain's runs share; it is filled
in.

A missing cell is None. A cell that is not what its column holds is a fault of the row, in words.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

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
