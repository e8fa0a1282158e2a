"""Some cases of benchmarks/verify_kinds.py: planned by the command line, written, read, trained by ranks, compared."""

from __future__ import annotations

import pytest

from benchmarks.verify_kinds import CASES, name_of, verified

CHOSEN = (
    "llama-tiny --baseline megatron tp=2 cp=2 exchange=ring-zigzag",
    "deepseek-tiny --baseline megatron cp=2 dp=2 ep=2 exchange=ring",
    "mixtral-tiny --baseline megatron tp=2 dp=2 ep=2",
)


@pytest.mark.distributed
@pytest.mark.parametrize("chosen", CHOSEN)
def test_a_plan_of_every_kind_equals_one_process_and_says_its_kind(chosen, tmp_path) -> None:
    (case,) = (case for case in CASES if name_of(case) == chosen)
    row = verified(case, tmp_path)
    assert "failed" not in row, row
    assert row["relative_error"] > 0
