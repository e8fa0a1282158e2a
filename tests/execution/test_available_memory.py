"""What the machine or the container can still give, and the error before it swaps."""

import pytest

from alpa_explore.errors import MachineMemoryError
from alpa_explore.execution import available_memory, tuning
from alpa_explore.execution.available_memory import available_bytes, require_memory
from alpa_explore.execution.executors import Executor

GIB = 2**30


def test_less_is_available_than_the_machine_has_where_a_container_has_a_limit_and_its_cache_of_files_is_free(tmp_path):
    machine, group = tmp_path / "meminfo", tmp_path / "group"
    assert available_bytes(machine, group) is None, "the system does not tell"
    machine.write_text(f"MemTotal: {16 * 2**20} kB\nMemFree: 100 kB\nMemAvailable: {8 * 2**20} kB\n")
    assert available_bytes(machine, group) == 8 * GIB
    group.mkdir()
    (group / "memory.current").write_text(f"{3 * GIB}\n")
    (group / "memory.stat").write_text(f"anon 1\ninactive_file {GIB}\n")
    for most, left in ((4 * GIB, 2 * GIB), ("max", 8 * GIB)):
        (group / "memory.max").write_text(f"{most}\n")
        assert available_bytes(machine, group) == left


def test_a_task_is_refused_where_it_would_make_the_machine_swap(monkeypatch):
    monkeypatch.setattr(available_memory, "available_bytes", lambda: tuning.RESERVED_BYTES + GIB)
    require_memory(GIB)
    with pytest.raises(MachineMemoryError) as refused:
        require_memory(GIB + 1)
    assert "1.25 GiB available, 1.00 GiB wanted" in refused.value.found
    assert "--layers" in refused.value.remedy


@pytest.mark.parametrize("scheduler", ["serial", "threads"])
def test_what_was_finished_before_memory_ran_out_is_kept(scheduler, monkeypatch):
    left = iter([GIB, GIB, 0])
    monkeypatch.setattr(available_memory, "available_bytes", lambda: next(left, 0))
    with Executor(scheduler, workers=1) as executor:
        results = executor.map(lambda task: task + 1, {n: n for n in range(5)})
        assert [next(results), next(results)] == [(0, 1), (1, 2)]
        with pytest.raises(MachineMemoryError):
            next(results)
