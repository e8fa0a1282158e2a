"""Cases of benchmarks/verify_kinds.py: planned by the command line, written, read, trained by ranks, compared."""

import pytest

from benchmarks.verify_kinds import CASES, Case, name_of, verified


@pytest.mark.distributed
@pytest.mark.sweep(kept=2, in_turn=True)
@pytest.mark.parametrize("case", CASES, ids=name_of)
def test_a_plan_of_every_kind_equals_one_process_and_says_its_kind(case: Case, tmp_path) -> None:
    row = verified(case, tmp_path)
    assert "failed" not in row, row
    assert row["relative_error"] > 0
