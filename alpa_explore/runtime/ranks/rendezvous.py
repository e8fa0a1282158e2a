"""The ranks of a run meet: by a file on one machine, else at a port of the first rank's host.

Who waits says for whom. The names of hosts are in `hosts.json` of the folder of the run, where the launcher wrote it.
"""

import json
from datetime import timedelta
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import torch.distributed as dist
from torch._C._distributed_c10d import Store

from alpa_explore.errors import RunError
from alpa_explore.runtime import tuning


def meet(init_method: str, folder: Path, ranks: tuple[int, ...], rank: int) -> Store | None:
    """The store by which the ranks find each other, when all are there; None where torch makes it (env://).

    `init_method` is 'file:PATH', or 'tcp://HOST:PORT', with '?listen=FD' for the agent of the first rank if it has
    inherited a socket that listens there. RunError, with the ranks that are missing, after `tuning.MEET_SECONDS`.
    """
    if init_method.startswith("file:"):  # a path may contain characters that a URL may not
        path = init_method.removeprefix("file:")
        return dist.FileStore(path, len(ranks))  # type: ignore[attr-defined]  # public, but missing in its `__all__`
    if not init_method.startswith("tcp://"):
        return None
    place, first = urlsplit(init_method), rank == ranks[0]
    given = parse_qs(place.query).get("listen")
    host_of = _hosts(folder)
    try:
        store = dist.TCPStore(  # type: ignore[attr-defined]  # public, but missing in its `__all__`
            place.hostname or "",
            place.port or 0,
            is_master=first,
            timeout=timedelta(seconds=tuning.MEET_SECONDS),
            wait_for_workers=False,
            master_listen_fd=int(given[0]) if first and given else None,
        )
        store.set(f"here/{rank}", "yes")
        _wait(store, ranks, rank, host_of)
    except dist.DistNetworkError as error:
        raise RunError(
            f"Rank {rank} did not meet the first rank",
            found=f"{_named(ranks[0], host_of)} at {place.hostname}, port {place.port}: {str(error).splitlines()[0]}",
            remedy="Look at the log of that rank, and open the port between the hosts.",
        ) from error
    store.set_timeout(tuning.TORCH_TIMEOUT)
    return store


def _wait(store: Store, ranks: tuple[int, ...], rank: int, host_of: dict[str, str]) -> None:
    try:
        store.wait([f"here/{other}" for other in ranks], timedelta(seconds=tuning.MEET_SECONDS))
    except dist.DistStoreError as error:
        missing = [other for other in ranks if not store.check([f"here/{other}"])]
        raise RunError(
            "The ranks did not all meet",
            found=f"after {tuning.MEET_SECONDS:.0f} s rank {rank} waits for "
            + ", ".join(_named(other, host_of) for other in missing),
            remedy="Look at the logs of these ranks, and at the network between the hosts.",
        ) from error


def _hosts(folder: Path) -> dict[str, str]:
    path = folder / "hosts.json"
    if not path.exists():
        return {}
    found: dict[str, str] = json.loads(path.read_text(encoding="utf-8"))
    return found


def _named(rank: int, host_of: dict[str, str]) -> str:
    host = host_of.get(str(rank))
    return f"rank {rank}" + (f" on {host}" if host else "")
