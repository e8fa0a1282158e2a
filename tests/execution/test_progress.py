"""Progress of a pass."""

import pytest

from alpa_explore.execution.progress import Progress


@pytest.mark.parametrize(("done", "total", "left"), [(2, 10, 16.0), (0, 10, None), (10, 10, 0.0), (0, 0, 0.0)])
def test_the_rest_is_expected_to_go_as_the_part_done(done: int, total: int, left: float | None) -> None:
    progress = Progress(pass_name="sharding", done=done, total=total, elapsed_seconds=4.0)
    assert progress.eta_seconds == left
