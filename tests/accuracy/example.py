"""A small record: three sources, with runs that failed, were refused, or are left out. Figures are made up."""

from functools import cache
from typing import Any

import pytest

from alpa_explore.accuracy import error_band
from alpa_explore.accuracy.measured_run import MeasuredRun
from alpa_explore.accuracy.record import Record, Source

GIB = 2.0**30
USERS = (
    "alpa_explore.accuracy.error_band",
    "alpa_explore.figures.accuracy_page",
    "alpa_explore.figures.page",
    "alpa_explore_widgets.tabs.accuracy",
)
"""Modules that read the stored record."""


def run(line: int, predicted: float | None, measured: float | None, **fields: Any) -> MeasuredRun:
    """A run of Megatron on one node of 8 H100; by default all that is not named is the same."""
    usual: dict[str, Any] = {
        "source": "first",
        "device": "h100",
        "software": "megatron",
        "gpus": 8,
        "model": "GPT-2B",
        "sizes": "24 layers",
        "sequence": 2048,
        "global_batch": 256,
        "micro_batch": 1,
        "microbatches": 32,
        "tensor": 1,
        "pipeline": 1,
        "data": 8,
        "precision": "bf16",
        "fits": True,
    }
    return MeasuredRun(line=line, predicted_seconds=predicted, measured_seconds=measured, **{**usual, **fields})


def example_record() -> Record:
    """'first': Megatron on one and several nodes of H100, with memory. 'second': nanotron on H100, four layouts, two of
    which failed. 'third': Megatron on 12 nodes of A100, refused."""
    first = [run(n, 1.1 * n, float(n), predicted_bytes=30 * GIB, measured_bytes=40 * GIB) for n in range(2, 8)]
    first += [run(n, 0.8 * n, float(n), gpus=32, data=32) for n in range(8, 14)]
    first.append(run(14, 5.0, 1.0, held_out=False))
    first.append(run(15, 99.0, 1.0, left_out="a fault of the software made its time"))
    nanotron = {"source": "second", "software": "nanotron", "model": "Llama-1B", "global_batch": 512}
    second = [
        run(2, 2.0, 2.2, tensor=2, data=4, **nanotron),
        run(3, 2.1, 2.0, tensor=1, data=8, **nanotron),
        run(4, 4.0, 4.4, tensor=8, data=1, **nanotron),
        run(5, 1.5, None, tensor=4, data=2, status="failed", **nanotron),
        run(6, 9.0, None, tensor=4, data=2, micro_batch=8, status="oom", **(nanotron | {"fits": False})),
    ]
    third = [run(2, None, 3.0, source="third", device="a100-80gb", gpus=96, fits=None, refused="96 experts")]
    return Record(
        runs=(*first, *second, *third),
        sources=tuple(
            Source(name=name, label=f"The {name}", origin=f"example.org/{name}", licence="Apache-2.0")
            for name in ("first", "second", "third")
        ),
        made="made up",
    )


def use_record(monkeypatch: pytest.MonkeyPatch, record: Record) -> None:
    """Let all readers of the stored record read this one. Plans remember their bands: use a plan of the test."""
    for module in USERS:
        monkeypatch.setattr(f"{module}.stored_record", lambda: record)
    # What was computed from the other record is not used, nor kept.
    monkeypatch.setattr(error_band, "stored_band", cache(error_band.stored_band.__wrapped__))
