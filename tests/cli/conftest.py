"""Answers of earlier tests are not known: many tests replace the planner, and ask the same."""

from __future__ import annotations

from pathlib import Path

import pytest

from alpa_explore.cli.planning import known_answer
from alpa_explore.store.cache import SolveCache


@pytest.fixture(autouse=True)
def answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the answers of this test."""
    folder = tmp_path / "answers"
    monkeypatch.setattr(known_answer, "open_answers", lambda: SolveCache(folder, code_version="tests"))
    return folder
