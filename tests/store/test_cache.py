"""The disk cache: what is put comes back, and whatever befalls the files, work goes on."""

import errno
import os
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

from alpa_explore.store.cache import SolveCache, default_folder
from tests.waiting import limit_seconds

VALUE = {"objective": 1.25e-3, "status": "OPTIMAL", "choices": [3, 0, 17], "totals": {"seconds": 0.1}, "none": None}


@pytest.fixture
def cache(tmp_path):
    return SolveCache(tmp_path / "cache", code_version="7")


def entry_file(cache):
    (path,) = entries(cache)
    return path


def entries(cache):
    return list(cache.folder.glob("*/*.json"))


def test_what_is_put_comes_back_in_another_process_as_in_this(cache):
    assert cache.get("a key") is None
    cache.put("a key", VALUE)
    assert cache.get("a key") == VALUE
    assert SolveCache(cache.folder, code_version="7").get("a key") == VALUE
    assert cache.get("another key") is None
    assert len(entries(cache)) == 1
    assert cache.warnings == []


def test_a_second_put_replaces_the_first(cache):
    cache.put("key", {"x": 1})
    cache.put("key", {"x": 2})
    assert cache.get("key") == {"x": 2}
    assert len(entries(cache)) == 1


@pytest.mark.parametrize("number", [0.1 + 0.2, 5e-324, 1.7976931348623157e308, float("inf"), -0.0, 2**60])
def test_numbers_come_back_bit_for_bit(cache, number):
    cache.put("key", {"x": number})
    assert repr(cache.get("key")["x"]) == repr(number)


@pytest.mark.parametrize(
    "array",
    [
        np.arange(200),
        np.array([-5, 70000]),
        np.array([2**62, -(2**62)]),
        np.array([2**53 + 1, -3]),
        np.array([2**40, 2**53 + 1]),
        np.array([2**63 - 1, -(2**63)]),
        np.array([2**63 - 1, 0]),
        np.array([2**64 - 1, 2**53 + 1], np.uint64),
        np.array([-129, 127], np.int16),
        np.array([-1, 128], np.int16),
        np.zeros((3, 0), np.int32),
        np.array([[0.1, np.inf], [np.nan, -2.0]]),
        np.array(7),
        np.array([True, False]),
        np.arange(12).reshape(3, 4).T,
    ],
)
def test_arrays_come_back_with_shape_and_dtype_and_read_only(cache, array):
    cache.put("key", {"nested": [{"array": array}]})
    found = cache.get("key")["nested"][0]["array"]
    assert found.dtype == array.dtype
    np.testing.assert_array_equal(found, array)
    assert found.shape == array.shape
    assert not found.flags.writeable


def test_choices_take_about_a_byte_each(cache):
    cache.put("key", {"choices": np.arange(3000) % 200})
    assert entry_file(cache).stat().st_size < 3000 * 1.4 + 200


def test_numpy_scalars_are_numbers_and_other_values_are_refused(cache):
    cache.put("key", {"x": np.float64(0.5), "n": np.int64(3)})
    assert cache.get("key") == {"x": 0.5, "n": 3}
    with pytest.raises(TypeError):
        cache.put("key", {"x": object()})


def test_a_file_cut_off_anywhere_is_a_miss_said_once_and_written_anew(cache):
    cache.put("key", {"choices": np.arange(40), **VALUE})
    path = entry_file(cache)
    whole = path.read_bytes()
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        assert cache.get("key") is None, length
    assert len(cache.warnings) <= 2
    assert any("damaged" in warning for warning in cache.warnings)
    cache.put("key", VALUE)
    assert cache.get("key") == VALUE


def test_a_changed_byte_is_a_miss(cache):
    cache.put("key", VALUE)
    path = entry_file(cache)
    path.write_bytes(path.read_bytes().replace(b"0.00125", b"0.00126"))
    assert cache.get("key") is None
    assert "damaged" in cache.warnings[0]


@pytest.mark.parametrize("content", [b"", b"\xff\xfe\x00", b"[]", b"\n{}", b"alpa-explore-cache 1 7 zzz\n{}"])
def test_a_strangers_file_is_a_miss(cache, content):
    cache.put("key", VALUE)
    entry_file(cache).write_bytes(content)
    assert cache.get("key") is None


def test_an_entry_of_another_version_is_computed_again_and_said_once(cache):
    for number in range(3):
        cache.put(f"key {number}", VALUE)
    newer = SolveCache(cache.folder, code_version="8")
    assert [newer.get(f"key {number}") for number in range(3)] == [None] * 3
    assert len(newer.warnings) == 1
    assert "another version" in newer.warnings[0]
    newer.put("key 0", {"x": 1})
    assert newer.get("key 0") == {"x": 1}


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EROFS, errno.EACCES, errno.EDQUOT])
def test_a_disk_that_refuses_turns_writing_off_with_one_warning(cache, monkeypatch, error):
    cache.put("before", VALUE)

    def refuse(self, data):
        Path.open(self, "wb").close()  # the file is begun, then the disk is full
        raise OSError(error, os.strerror(error))

    monkeypatch.setattr(Path, "write_bytes", refuse)
    cache.put("key", VALUE)
    cache.put("key 2", VALUE)
    monkeypatch.undo()
    assert cache.get("key") is None
    assert cache.get("before") == VALUE, "reading goes on"
    assert len(cache.warnings) == 1
    assert os.strerror(error) in cache.warnings[0]
    cache.put("key 3", VALUE)
    assert cache.get("key 3") is None, "nothing is written any more"
    assert not list(cache.folder.glob("*/*.tmp"))


def test_a_folder_that_cannot_be_made_is_no_error(tmp_path):
    (tmp_path / "file").write_text("")
    cache = SolveCache(tmp_path / "file" / "cache")
    assert cache.get("key") is None
    cache.put("key", VALUE)
    assert len(cache.warnings) == 2, "it can neither be read nor written"


def test_threads_may_share_a_cache(cache):
    def work(number):
        for step in range(40):
            cache.put(f"key {step}", {"step": step})
            assert cache.get(f"key {step}") == {"step": step}

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(entries(cache)) == 40
    assert cache.warnings == []


WRITER = """
import sys
from alpa_explore.store.cache import SolveCache
cache = SolveCache(sys.argv[1], code_version="7")
for turn in range(30):
    for number in range(20):
        cache.put(f"key {number}", {"number": number, "filler": [turn] * 500})
        found = cache.get(f"key {number}")
        assert found["number"] == number and len(set(found["filler"])) == 1, found
assert not cache.warnings, cache.warnings
"""


@pytest.mark.distributed
def test_two_processes_may_write_the_same_entries_at_once(cache):
    writers = [subprocess.Popen([sys.executable, "-c", WRITER, str(cache.folder)]) for _ in range(3)]
    assert [writer.wait(limit_seconds()) for writer in writers] == [0, 0, 0]
    assert len(entries(cache)) == 20


def test_the_folder_is_the_users_the_xdg_one_or_the_platforms(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    monkeypatch.setenv("ALPA_EXPLORE_CACHE", str(tmp_path / "own"))
    assert default_folder() == tmp_path / "own"
    assert SolveCache().folder == tmp_path / "own"
    monkeypatch.delenv("ALPA_EXPLORE_CACHE")
    assert default_folder() == tmp_path / "xdg" / "alpa_explore"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert default_folder().is_relative_to(tmp_path) or sys.platform == "win32"
    if sys.platform == "linux":
        assert default_folder() == tmp_path / ".cache" / "alpa_explore"


def test_opening_a_cache_writes_nothing(tmp_path):
    assert SolveCache(tmp_path / "cache").get("key") is None
    assert not (tmp_path / "cache").exists()
