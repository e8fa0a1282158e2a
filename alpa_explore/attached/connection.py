"""Connect to a scheduler, and call functions on its workers.

Dask's messages are pickles: who connects to a scheduler trusts it with this account. So an address that anyone on the
Internet could have needs a word from the user; this machine and private networks do not, and neither does tls://, where
both sides show certificates.
"""

import asyncio
import ipaddress
import os
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any
from urllib.parse import urlsplit

from alpa_explore.attached import tuning
from alpa_explore.errors import ExecutorError, OptionError
from alpa_explore.execution.quiet import quiet_client

_SCHEMES = ("tcp", "tls", "ucx", "inproc", "ws", "wss")


def scheduler_address(scheduler: Any, *, allow_remote: bool = False) -> str:
    """The address of a scheduler: of a text 'tcp://host:8786' or 'host:8786', or of a dask Client or cluster.

    OptionError for a text of another form, and for an address outside this machine and private networks without
    `allow_remote`.
    """
    if not isinstance(scheduler, str):
        found = getattr(getattr(scheduler, "scheduler", None), "address", None) or getattr(
            scheduler, "scheduler_address", None
        )
        if not isinstance(found, str):
            raise OptionError(
                "Hosts are found by a Dask scheduler",
                found=repr(scheduler)[:80],
                remedy="Give its address, tcp://host:8786, or a dask Client.",
            )
        return found  # connected already
    address = scheduler.strip()
    if "://" not in address:
        address = f"tcp://{address}"
    parts = urlsplit(address)
    try:
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port = None, None
    if parts.scheme not in _SCHEMES or not host or (port is None and parts.scheme != "inproc"):
        raise OptionError(
            "The address of a Dask scheduler is written tcp://HOST:PORT",
            found=repr(scheduler),
            remedy="Give the address that `dask scheduler` prints, such as tcp://127.0.0.1:8786.",
        )
    if parts.scheme not in ("tls", "wss", "inproc") and not allow_remote:
        _check_near(address, host)
    return address


def _check_near(address: str, host: str) -> None:
    try:
        found = {str(info[4][0]).partition("%")[0] for info in socket.getaddrinfo(host, None)}
    except OSError as error:
        raise ExecutorError(
            "The name of the scheduler's host is not known here",
            found=f"{address}: {error.strerror or error}",
            remedy="Give its IP address.",
        ) from error
    far = sorted(ip for ip in found if ipaddress.ip_address(ip).is_global)
    if far:
        raise OptionError(
            "The scheduler is neither on this machine nor on a private network",
            found=f"{address} is {', '.join(far)}",
            remedy="Dask's messages can run code here. If you trust it: --allow-remote (allow_remote=True), or tls://.",
        )


@asynccontextmanager
async def connected(address: str) -> AsyncIterator[Any]:
    """An asynchronous client of the scheduler. ExecutorError where it cannot be reached."""
    from distributed import Client

    with quiet_client():
        try:
            await asyncio.wait_for(_knock(address), tuning.CONNECT_SECONDS)
            client: Any = Client(address, asynchronous=True, timeout=tuning.CONNECT_SECONDS, set_as_default=False)  # type: ignore[no-untyped-call]  # dask has few annotations
            try:
                # Dask's own time limit does not hold for a server that accepts and says nothing.
                await asyncio.wait_for(client, 2 * tuning.CONNECT_SECONDS)
            except TimeoutError:
                await _closed(client)
                raise OSError("what listens there does not answer as a Dask scheduler does") from None
            except BaseException:
                await _closed(client)
                raise
        except (OSError, TimeoutError, ValueError) as error:
            raise ExecutorError(
                "The Dask scheduler cannot be reached",
                found=f"{address}: {_reason(error)}",
                remedy="Check that it runs, and give the address that `dask scheduler` prints.",
            ) from error
        try:
            yield client
        finally:
            await _closed(client)


async def _knock(address: str) -> None:
    """Open a connection and close it: Dask itself tries again where it is refused."""
    parts = urlsplit(address)
    if parts.scheme in ("tcp", "tls"):
        _, writer = await asyncio.open_connection(parts.hostname, parts.port)
        writer.close()


async def _closed(client: Any) -> None:
    with suppress(TimeoutError):  # it would wait for a scheduler that is gone
        await asyncio.wait_for(client.close(), tuning.CONNECT_SECONDS)


async def call(
    client: Any, workers: list[str], function: Callable[..., Awaitable[Any]], *arguments: Any, seconds: float
) -> dict[str, Any]:
    """Worker -> what the coroutine `function` returned there, or the exception.

    It takes no slot of a worker, so one that computes answers as well. A worker that does not answer in time has an
    `ExecutorError` in place of its result.
    """

    async def one(worker: str) -> Any:
        try:
            running = client.run(function, *arguments, workers=[worker], on_error="return")
            return (await asyncio.wait_for(running, seconds)).get(worker)
        except TimeoutError:
            return ExecutorError(
                "A Dask worker does not answer",
                found=f"{worker}, for {seconds:.0f} s",
                remedy="Look at its log, or leave its host out.",
            )

    return dict(zip(workers, await asyncio.gather(*(one(worker) for worker in workers)), strict=True))


async def call_one(
    client: Any, worker: str, function: Callable[..., Awaitable[Any]], *arguments: Any, seconds: float
) -> Any:
    """As `call`, of one worker."""
    return (await call(client, [worker], function, *arguments, seconds=seconds))[worker]


def _reason(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return f"no answer within {tuning.CONNECT_SECONDS:.0f} s"
    if isinstance(error, OSError) and error.errno:
        return os.strerror(error.errno).lower()
    return str(error) or repr(error)
