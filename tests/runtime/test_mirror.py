"""What is written on a host arrives at the launcher, whole and once, whatever answers are lost."""

import pytest

from alpa_explore.errors import RunError
from alpa_explore.runtime import tuning
from alpa_explore.runtime.targets.mirror import FilePiece, Mirror, Pace, discard_seen, news


@pytest.fixture
def there(tmp_path):
    (tmp_path / "host" / "job").mkdir(parents=True)
    return tmp_path / "host"


@pytest.fixture
def mirror(tmp_path):
    (tmp_path / "launcher").mkdir()
    return Mirror(tmp_path / "launcher")


def copied(there, mirror, limit=10**6):
    while True:
        pieces, more = news(there, mirror.seen, limit)
        for piece in pieces:
            mirror.write(piece)
        if not more:
            return


def texts(folder):
    return {p.relative_to(folder).as_posix(): p.read_text() for p in folder.rglob("*") if p.is_file()}


def test_files_arrive_as_they_grow_and_as_they_change(there, mirror) -> None:
    (there / "rank-0.log").write_text("one\n")
    (there / "rank-0.alive").write_text("{1}")
    (there / "empty.json").touch()
    (there / "job" / "rank-0.pickle").write_text("sent by the launcher")
    (there / "run.json").write_text("sent by the launcher")
    (there / "rank-0.tmp").write_text("half")
    copied(there, mirror)
    assert texts(mirror.folder) == {"rank-0.log": "one\n", "rank-0.alive": "{1}", "empty.json": ""}
    assert news(there, mirror.seen, 10**6) == ([], False)
    with (there / "rank-0.log").open("a") as stream:
        stream.write("two\n")
    (there / "rank-0.alive").write_text("{22}")
    pieces, _ = news(there, mirror.seen, 10**6)
    assert sorted(p.data for p in pieces) == [b"two\n", b"{22}"]
    copied(there, mirror)
    assert texts(mirror.folder)["rank-0.log"] == "one\ntwo\n"
    assert texts(mirror.folder)["rank-0.alive"] == "{22}"


def test_a_large_file_comes_in_pieces_has_its_name_at_the_end_and_does_not_hold_up_a_log(there, mirror) -> None:
    (there / "checkpoints" / ".step-000002.writing").mkdir(parents=True)
    (there / "checkpoints" / ".step-000002.writing" / "__0_0.distcp").write_text("0123456789")
    (there / "rank-0.log").write_text("now")
    pieces, more = news(there, mirror.seen, 7)
    assert more
    for piece in pieces * 2:  # the answer was lost, and came again
        mirror.write(piece)
    assert "rank-0.log" in texts(mirror.folder)
    assert "checkpoints/.step-000002.writing/__0_0.distcp" not in texts(mirror.folder)
    discard_seen(there, mirror.seen, "checkpoints")
    assert len(texts(there)) == 2
    copied(there, mirror, limit=3)
    assert texts(mirror.folder)["checkpoints/.step-000002.writing/__0_0.distcp"] == "0123456789"
    discard_seen(there, mirror.seen, "checkpoints")
    assert list(texts(there)) == ["rank-0.log"]


@pytest.mark.parametrize("waiting", [0.01, 3.0])
def test_pieces_grow_on_a_fast_link_and_shrink_on_a_slow_one_until_each_takes_about_a_second(waiting) -> None:
    pace = Pace()
    pace.note(100, waiting)  # of a busy host: that is no matter of the link

    def settled(bytes_per_second):
        for _ in range(30):
            pace.note(pace.limit, waiting + pace.limit / bytes_per_second)
        return pace.limit

    assert settled(1e9) == tuning.MAX_PIECE_BYTES
    for rate in (10e6 / 8, 1e6 / 8, 100e6 / 8):
        assert rate / 2 <= settled(rate) <= 2 * rate
    assert settled(256e3 / 8) == tuning.PIECE_BYTES
    pace.note(2 * tuning.SMALL_BYTES, waiting)
    assert pace.limit == tuning.PIECE_BYTES, "less than was allowed says nothing about the link"


def test_a_file_that_changes_while_it_is_sent_is_sent_anew(there, mirror) -> None:
    (there / "step-0-rank-0.pt").write_text("aaaa")
    mirror.write(news(there, mirror.seen, 2)[0][0])
    (there / "step-0-rank-0.pt").write_text("bbbbbb")
    copied(there, mirror, limit=2)
    assert texts(mirror.folder) == {"step-0-rank-0.pt": "bbbbbb"}


@pytest.mark.parametrize("path", ["../outside", "/etc/outside", "job/rank-0.pickle", "run.json"])
def test_a_host_writes_only_files_of_its_own(path, mirror) -> None:
    with pytest.raises(RunError, match="none of its own"):
        mirror.write(FilePiece(path=path, version="", offset=0, size=1, data=b"x"))
    assert texts(mirror.folder) == {}
