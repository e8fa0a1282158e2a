"""Progress of a pass."""

from alpa_explore.execution.progress import Progress


def at(done, total=10, elapsed=4.0):
    return Progress(pass_name="sharding", done=done, total=total, elapsed_seconds=elapsed)


def test_the_rest_is_expected_to_go_as_the_part_done():
    assert at(2).eta_seconds == 16.0


def test_nothing_is_expected_before_the_first_task_is_done():
    assert at(0).eta_seconds is None


def test_a_finished_pass_has_nothing_left():
    assert at(10).eta_seconds == 0.0
    assert at(0, total=0).eta_seconds == 0.0
