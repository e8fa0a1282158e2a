"""The logs of all ranks of a run in one view, each line with its rank and host."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from alpa_explore.errors import OptionError
from alpa_explore.runtime.folder import NewLines, attempts_of, read_facts, read_hosts
from alpa_explore.runtime.reports import events


@dataclass(frozen=True, slots=True, kw_only=True)
class LogLine:
    """A line that a rank or an agent printed."""

    source: str
    """'rank 2 node1 (10.0.0.2)', 'agent of rank 2 …'; without a host where all are on this machine."""
    text: str


class LogReader:
    """Reads the logs in the folder of a run; each call reads only new lines."""

    def __init__(self, folder: Path, ranks: Sequence[int] | None = None) -> None:
        """Of some ranks, or of all ranks and their agents, in the run's last attempt. OptionError for a folder that is
        none, and a rank that it does not have."""
        folder = attempts_of(folder)[-1]
        try:
            self._all: list[int] = read_facts(folder)["ranks"]
        except (OSError, ValueError) as error:
            raise _no_run(folder, error) from error
        if absent := sorted(set(ranks or ()) - set(self._all)):
            raise OptionError(
                "The run has no such rank",
                found=f"{absent[0]}",
                remedy=f"Choose from {self._all[0]} to {self._all[-1]}.",
            )
        self.folder, self.ranks = folder, tuple(ranks or self._all)
        self._agents = not ranks
        self._lines: dict[str, NewLines] = {}

    def __call__(self, *, last: bool = False) -> Iterator[LogLine]:
        """The new lines, rank by rank; `last`: also one without an end."""
        try:
            hosts = read_hosts(self.folder)
        except (OSError, ValueError) as error:
            raise _no_run(self.folder, error) from error
        for rank in self.ranks:
            width = len(str(self._all[-1]))
            host = hosts.get(str(rank), "")
            if self._agents:
                yield from self._new(f"agent-{rank}.log", f"agent {host}".strip(), last)
            yield from self._new(f"rank-{rank}.log", f"rank {rank:>{width}} {host}".strip(), last)

    def over(self) -> bool:
        """Whether all ranks have said that they are done or failed, or their agents have ended."""
        ended = {e["event"] for rank in self.ranks for e in events(self.folder, rank)}
        if "error" in ended or (self.folder / "measured.json").exists():
            return True
        agents = list(self.folder.glob("agent-*.log"))
        return bool(agents) and all(path.with_suffix(".json").exists() for path in agents)

    def _new(self, name: str, source: str, last: bool) -> Iterator[LogLine]:
        for line in self._lines.setdefault(name, NewLines(self.folder / name))(last=last):
            yield LogLine(source=source, text=line.decode("utf-8", errors="replace"))


def _no_run(folder: Path, why: object) -> OptionError:
    return OptionError(
        "This is not the folder of a run",
        found=f"{folder}: {why}",
        remedy="Name the folder that `alpa-explore launch` printed.",
    )
