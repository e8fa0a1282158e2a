"""Files of strangers: one reader for all of them, which neither waits nor takes memory without end."""

import gzip
import json
import math
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from alpa_explore.store import read
from alpa_explore.store.read import open_regular, parse_json, read_bytes, read_pieces, read_table

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**30), 10**30)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@given(VALUES)
def test_what_json_writes_within_the_bounds_is_read_as_it_was(value) -> None:
    text = json.dumps(value)
    found = parse_json(text)
    assert found == value
    assert json.dumps(found) == text == json.dumps(parse_json(text.encode()))


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("1" * 310, "an integer of 310 digits"),
        ("-1" + "0" * 31, "an integer of 33 digits"),
        (f"[{10**30 + 1}]", "an integer of 31 digits"),
        ("9" * 10**5, "an integer of 100000 digits"),
        ('{"a": 1e999}', "1e999 is too large"),
        ("-1.5E+400", "is too large"),
        ("[NaN]", "NaN is not a number"),
        ("-Infinity", "-Infinity is not a number"),
        ("[" * 65 + "]" * 65, "nested too deeply"),
        ('{"a":' * 65 + "1" + "}" * 65, "nested too deeply"),
        ("[" * 10**6, "nested too deeply"),
        ("[" + "[]," * read.MOST_PARTS + "[]]", "more than 6,000,000 lists"),
        ("{", "Expecting property name"),
    ],
)
def test_what_is_out_of_bounds_is_a_value_error(text, told) -> None:
    for given_text in (text, text.encode()):
        with pytest.raises(ValueError, match=told):
            parse_json(given_text)


def test_lines_of_a_table_have_an_end(tmp_path) -> None:
    path = tmp_path / "a.csv"
    for ends in ("\n", "\r", "\r\n"):
        path.write_bytes((f"abc{ends}" * 50).encode())
        assert read_table(path, 1000, 5) == f"abc{ends}" * 50
        with pytest.raises(ValueError, match=r"line \d+ has more than 2 bytes"):
            read_table(path, 1000, 2)
        path.write_bytes((f"abc{ends}" * 50 + "defghi").encode())
        with pytest.raises(ValueError, match="has more than 5 bytes"):
            read_table(path, 1000, 5)


def test_numbers_inside_texts_are_texts(tmp_path) -> None:
    value = {"9" * 40: "1e999", "digest": "1" * 64, "e": [1e-300, 1.5e300, 0.000123456789012345678901]}
    (tmp_path / "a.json").write_text(json.dumps(value))
    assert read.read_json(tmp_path / "a.json", 1000) == value


def test_bytes_are_counted_while_they_are_read(tmp_path) -> None:
    (tmp_path / "a").write_bytes(b"x" * 100)
    assert read_bytes(tmp_path / "a", 100) == b"x" * 100
    with pytest.raises(ValueError, match="more than 99 bytes"):
        read_bytes(tmp_path / "a", 99)
    packed = tmp_path / "a.gz"
    packed.write_bytes(gzip.compress(bytes(5 * 2**20)))
    with gzip.open(packed) as stream, pytest.raises(ValueError, match="more than 3 MiB"):
        read_pieces(stream, 3 * 2**20)
    with gzip.open(packed) as stream:
        assert read_pieces(stream, 5 * 2**20) == bytes(5 * 2**20)


def strange(folder: Path) -> dict[str, str]:
    """Files that are none, by kind."""
    os.mkfifo(folder / "pipe")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(folder / "socket"))
    (folder / "folder").mkdir()
    (folder / "link").symlink_to(folder / "pipe")
    names = {name: str(folder / name) for name in ("pipe", "socket", "folder", "link")}
    return {**names, "zero": "/dev/zero", "random": "/dev/urandom", "terminal": "/dev/tty"}


def test_only_regular_files_are_opened(tmp_path) -> None:
    before = set(os.listdir("/proc/self/fd")) if Path("/proc/self/fd").exists() else set()
    for name, path in strange(tmp_path).items():
        with pytest.raises(OSError, match=r"folder|pipe or a device|No such device"):
            open_regular(path)
        assert name
    assert not before or set(os.listdir("/proc/self/fd")) <= before
    (tmp_path / "file").write_text("1")
    (tmp_path / "to file").symlink_to(tmp_path / "file")
    assert read_bytes(tmp_path / "to file", 10) == b"1"


READERS = """
import os, resource, sys, time
from pathlib import Path
from alpa_explore.errors import AlpaExploreError
from alpa_explore.attached.attach import load_attached
from alpa_explore.cluster import Cluster
from alpa_explore.iopddl.files import read_problem, reading_seconds
from alpa_explore.models.configs.huggingface import read_config
from alpa_explore.plans.plan import load_plan
from alpa_explore.runtime.checkpoints.description import find_checkpoint
from alpa_explore.schedules.csv_file import read_csv
from alpa_explore.store.cache import SolveCache
from alpa_explore.validation.runs.rows import read_rows

def checkpoint(path):
    home = Path(sys.argv[1]) / f"of {Path(path).name}" / "step-000001"
    if not home.exists():
        home.mkdir(parents=True)
        (home / "checkpoint.json").symlink_to(path)
    find_checkpoint(home.parent)

def cached(path):
    cache = SolveCache(Path(sys.argv[1]) / f"cache of {Path(path).name}")
    cache.put("key", {"a": 1})
    (entry,) = cache.folder.glob("*/*.json")
    entry.unlink()
    entry.symlink_to(path)
    assert cache.get("key") is None
    assert cache.warnings or not Path(path).exists(), "a miss, and a word"
    raise AlpaExploreError("miss", found="it", remedy="none")

READERS = {
    "plan": load_plan,
    "cluster": lambda path: Cluster.parse(path),
    "device": lambda path: Cluster.parse(f"1x2:{path}"),
    "attached": load_attached,
    "config": read_config,
    "runs": lambda path: read_rows([path]),
    "schedule": read_csv,
    "problem": read_problem,
    "checkpoint": checkpoint,
    "cache": cached,
}
start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
for path in sys.argv[2:]:
    for name, reader in READERS.items():
        reading_seconds(path)
        began = time.process_time()
        try:
            reader(path)
        except AlpaExploreError as error:
            assert str(path) in str(error) or name in ("checkpoint", "cache", "schedule"), (name, path, error)
        else:
            raise AssertionError(f"{name} reads {path}")
        seconds, memory = time.process_time() - began, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - start
        print(f"{name} {path} {seconds:.2f} s {memory / 1024:.0f} MiB")
"""


def hostile(folder: Path) -> list[str]:
    """Regular files that would take gigabytes, or end in an error far from the file."""
    bombs = {
        "empty.json.gz": gzip.compress(b'{"problem": {"nodes": {"costs": [' + b"[]," * 60_000_000 + b"[]]}}}"),
        "ones.json.gz": gzip.compress(b'{"problem": {"nodes": {"costs": [' + b"[0]," * 30_000_000 + b"[0]]}}}"),
        "objects.json.gz": gzip.compress(b"[" + b"{}," * 30_000_000 + b"{}]"),
        "lists.json": b"[" + b"[]," * 10**7 + b"[]]",
        "deep.json": b"[" * 10**6,
        "deep-object.json": b'{"format":"alpa_explore.plan","a":' * 900 + b"1" + b"}" * 900,
        "deep.toml": b"a = " + b"[" * 10**5,
        "bytes": bytes(range(256)) * 1000,
    }
    for name, content in bombs.items():
        (folder / name).write_bytes(content)
    return [str(folder / name) for name in bombs]


@pytest.mark.slow
def test_every_reader_refuses_what_is_no_file_and_what_has_no_end(tmp_path) -> None:
    """In a process with little memory: what would take gigabytes fails there at once."""
    paths = [*strange(tmp_path).values(), str(tmp_path / "missing"), *hostile(tmp_path)]
    (tmp_path / "work").mkdir()
    limited = "import resource; resource.setrlimit(resource.RLIMIT_AS, (6 * 2**30, 6 * 2**30))\n"
    done = subprocess.run(
        [sys.executable, "-c", limited + READERS, str(tmp_path / "work"), *paths],
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    lines = done.stdout.splitlines()
    assert len(lines) == 10 * len(paths)
    assert max(float(line.split()[-2]) for line in lines) < 800, "MiB, of which 128 may be the text of a plan"


def test_infinities_are_numbers_where_a_reader_takes_them() -> None:
    assert parse_json("[0.0, Infinity, -Infinity]", infinity=True) == [0.0, math.inf, -math.inf]
    with pytest.raises(ValueError, match="NaN is not a number"):
        parse_json("[NaN]", infinity=True)
