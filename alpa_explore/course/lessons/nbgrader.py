"""The metadata by which nbgrader knows the cells of exercises (its cell metadata schema, version 3).

- A cell that asks an exercise is the student's: not locked, so that it may be edited, and no `solution`, as nbgrader
  empties such cells when it makes the version for students.
- The cell with `points("06")` is locked and graded: nbgrader takes the number that it shows as its points, and runs it
  in the session in which the answers were given.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from alpa_explore.course.lessons.notebook import Cell
from alpa_explore.course.registry import exercises_of

KEY = "nbgrader"
_VERSION = 3


def nbgrader_metadata(cell: Cell) -> Mapping[str, Any] | None:
    """The metadata that a cell should have under 'nbgrader'; None for none."""
    if cell.points:
        return _metadata(f"points-{cell.points}", graded=True) | {
            "points": sum(exercise.points for exercise in exercises_of(cell.points))
        }
    if cell.exercise:
        return _metadata(f"exercise-{cell.exercise.replace('.', '-')}", graded=False)
    return None


def _metadata(grade_id: str, *, graded: bool) -> dict[str, Any]:
    return {
        "schema_version": _VERSION,
        "grade_id": grade_id,
        "grade": graded,
        "solution": False,
        "locked": graded,
        "task": False,
        "cell_type": "code",
    }
