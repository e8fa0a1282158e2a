"""A student whose progress is kept where a test may write, and who begins anew with each test."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from alpa_explore.course import students


@pytest.fixture(autouse=True)
def course_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("ALPA_EXPLORE_COURSE", str(tmp_path / "course"))
    students.desk.cache_clear()
    yield tmp_path / "course"
    students.desk.cache_clear()
