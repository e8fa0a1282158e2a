"""What the machine or the container can still give, and the error before it swaps."""

import pytest

from alpa_explore.errors import MachineMemoryError
from alpa_explore.execution import available_memory, tuning
from alpa_explore.execution.available_memory import available_bytes, require_memory
from alpa_explore.execution.executors import Executor

GIB = 2**30


@pytest.fixture
def system(tmp_path):
    """A machine with 8 GiB available, without a control group."""
    machine, group = tmp_path / "meminfo", tmp_path / "group"
    machine.write_text(f"MemTotal: {16 * 2**20} kB\nMemFree: 100 kB\nMemAvailable: {8 * 2**20} kB\n")
    return machine, group


def limit(group, most, used, inactive=0):
    group.mkdir()
    (group / "memory.max").write_text(f"{most}\n")
    (group / "memory.current").write_text(f"{used}\n")
    (group / "memory.stat").write_text(f"anon 1\ninactive_file {inactive}\n")


def test_the_machine_says_what_is_available(system):
    assert available_bytes(*system) == 8 * GIB


def test_the_limit_of_a_container_counts_without_its_cache_of_files(system):
    limit(system[1], 4 * GIB, 3 * GIB, inactive=GIB)
    assert available_bytes(*system) == 2 * GIB


def test_a_container_without_a_limit_has_what_the_machine_has(system):
    limit(system[1], "max", 3 * GIB)
    assert available_bytes(*system) == 8 * GIB


def test_nothing_is_known_where_the_system_does_not_tell(tmp_path):
    assert available_bytes(tmp_path / "none", tmp_path) is None


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
