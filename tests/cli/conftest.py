"""Answers of earlier tests are not known: many tests replace the planner, and ask the same."""

from pathlib import Path

import pytest

from alpa_explore.cli.planning import plan
from alpa_explore.store.cache import SolveCache
from tests.plans.example import example_plan


@pytest.fixture(autouse=True)
def answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the answers of this test."""
    folder = tmp_path / "answers"
    monkeypatch.setattr(plan, "open_answers", lambda: SolveCache(folder, code_version="tests"))
    return folder


@pytest.fixture(scope="session")
def plan_file(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Of four stages with layers for every schedule."""
    path = tmp_path_factory.mktemp("plans") / "a.plan.json"
    example_plan(num_layers=8, num_microbatches=16).save(path)
    return str(path)
