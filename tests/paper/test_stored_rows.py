"""The stored results of benchmarks/paper.py and benchmarks/baselines.py (paper_rows.json) against the paper's tables.

A row takes minutes to plan; tests/paper/test_tables.py plans the small ones anew.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from alpa_explore.baselines.kinds import KINDS
from alpa_explore.models.catalog import entry, names

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
ROWS: dict[str, dict[str, Any]] = json.loads((BENCHMARKS / "paper_rows.json").read_text(encoding="utf-8"))
PAPER = json.loads((BENCHMARKS / "alpa_paper.json").read_text(encoding="utf-8"))
GPT = [name for name in ROWS if name.startswith("gpt")]
OWN = "of its own"
"""As in benchmarks/stored.py: a baseline with other layers, or other microbatches, than the automatic plan."""
LEAST, MOST = 0.7, 1.35
"""Predicted over measured PFLOPS, as in test_tables."""


def paper_names() -> set[str]:
    return {name for name in names() if entry(name).gpus and name.startswith(("gpt", "moe", "wide-resnet"))}


def measured(name: str) -> float | None:
    """PFLOPS measured by the paper; None for rows on fewer than 8 GPUs, which its figures do not show."""
    table = PAPER["throughput_pflops"]
    family = next(f for f in ("gpt", "moe", "wide_resnet") if name.replace("-", "_").startswith(f))
    column = table["columns"].index(f"{family}_alpa")
    return next((row[column] for row in table["rows"] if row[0] == entry(name).gpus), None)


def test_every_row_of_the_papers_tables_was_planned():
    assert paper_names() == set(ROWS)


@pytest.mark.parametrize("name", sorted(ROWS))
def test_the_prediction_of_a_row_is_close_to_the_measurement_of_the_paper(name):
    pflops = measured(name)
    assert pflops is None or LEAST < ROWS[name]["pflops"] / pflops < MOST


@pytest.mark.parametrize("name", sorted(ROWS))
def test_the_plan_of_the_paper_is_predicted_no_faster_than_ours(name):
    assert ROWS[name].get("paper_plan_over_ours", 1.0) >= 1 - 1e-9


@pytest.mark.parametrize("name", GPT)
def test_no_baseline_with_the_same_layers_is_predicted_faster_than_the_automatic_plan(name):
    ratios = {text: r for text, r in ROWS[name]["baselines"].items() if not isinstance(r, str) and OWN not in text}
    assert ratios
    assert [text for text, ratio in ratios.items() if ratio < 1 - 1e-9] == []


@pytest.mark.parametrize("name", GPT)
def test_every_baseline_of_a_gpt_row_has_a_time_or_the_memory_that_it_lacks(name):
    baselines = ROWS[name]["baselines"]
    for kind in KINDS:
        ratios = [ratio for text, ratio in baselines.items() if text.startswith(kind)]
        assert ratios, kind
        if all(isinstance(ratio, str) for ratio in ratios):
            refused = f"The baseline {kind} is not possible on" in ratios[-1]
            assert refused or " of 16 GiB on a device" in ratios[-1], ratios
