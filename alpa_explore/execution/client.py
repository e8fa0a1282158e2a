"""A client of a Dask scheduler, and calls of functions on its workers: all that reaches workers comes through here.

A call runs on the worker's event loop (`Client.run`): it takes no slot, so a worker that computes answers as well.
What dask logs is silenced: the lines of a cluster of ours, and the traceback of many screens when a scheduler goes.
Errors of ours report it in one line.
"""

import asyncio
import logging
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

from alpa_explore.errors import ExecutorError, OptionError
from alpa_explore.execution import tuning


@contextmanager
def client_of(scheduler: Any) -> Iterator[Any]:
    """A client of a scheduler: the user's own, or that of an address or a cluster for the block. ExecutorError where it
    cannot be reached, OptionError for what is none."""
    from distributed import Client

    if isinstance(scheduler, Client) and scheduler.asynchronous:
        raise OptionError(
            "The dask Client is asynchronous",
            found=repr(scheduler),
            remedy="Give Client(…, asynchronous=False), or its address, tcp://….",
        )
    with quiet_client():
        if isinstance(scheduler, Client):
            yield scheduler
            return
        try:
            if isinstance(scheduler, str):
                _knock(scheduler)
            client = Client(scheduler, timeout=tuning.CONNECT_SECONDS, set_as_default=False)  # type: ignore[no-untyped-call]  # dask has few annotations
        except (OSError, ValueError) as error:
            reason = (getattr(error, "strerror", None) or "").lower() or str(error) or type(error).__name__
            raise ExecutorError(
                "The Dask scheduler cannot be reached",
                found=f"{scheduler}: {reason}",
                remedy="Check that it runs, and give the address that `dask scheduler` prints.",
            ) from error
        try:
            yield client
        finally:
            client.close()  # type: ignore[no-untyped-call]  # dask has few annotations


def _knock(address: str) -> None:
    """OSError where nobody listens, or nobody who speaks first, as a scheduler does: Dask would try again where it is
    refused, and wait for ever where it hears nothing."""
    parts = urlsplit(address if "://" in address else f"tcp://{address}")
    if parts.scheme not in ("tcp", "tls") or parts.port is None:
        return
    try:
        with socket.create_connection((parts.hostname, parts.port), tuning.CONNECT_SECONDS) as line:
            if parts.scheme == "tcp" and not line.recv(1):
                raise OSError("it closes the connection")
    except TimeoutError:
        raise OSError("what listens there, if anything, does not answer as a Dask scheduler does") from None


async def call(client: Any, worker: str, function: Callable[..., Any], *arguments: Any, seconds: float) -> Any:
    """The result of a function, or of a coroutine function, on a worker. ExecutorError where there is none in time."""
    try:
        return (await asyncio.wait_for(client.run(function, *arguments, workers=[worker]), seconds))[worker]
    except (OSError, TimeoutError, KeyError) as error:
        silent = ExecutorError(
            "A Dask worker does not answer",
            found=f"{worker}: {str(error) or f'none for {seconds:.0f} s'}",
            remedy="Look at its log, or leave its host out.",
        )
        silent.lost = (worker,)
        raise silent from error


async def call_each(
    client: Any, workers: Sequence[str], function: Callable[..., Any], *arguments: Any, seconds: float
) -> dict[str, Any]:
    """Worker -> the result of `call` there, or what it raised."""
    calls = (call(client, worker, function, *arguments, seconds=seconds) for worker in workers)
    return dict(zip(workers, await asyncio.gather(*calls, return_exceptions=True), strict=True))


async def on_thread(function: Callable[..., Any], *arguments: Any) -> Any:
    """On a worker: the result of a function that takes long, on a thread, while the worker answers others."""
    return await asyncio.to_thread(function, *arguments)


@contextmanager
def quiet_client() -> Iterator[None]:
    """Of dask's clients and connections, log only what is critical; such contexts may overlap in any order."""
    with _critical_alone([logging.getLogger(f"distributed.{part}") for part in ("client", "comm", "core")]):
        yield


@contextmanager
def quiet_cluster() -> Iterator[None]:
    """Of all parts of dask, print only what is critical meanwhile; such contexts may overlap in any order. (Those of
    dask itself may not: the end of the first gives the handlers their level back, and the second prints.)"""
    handlers = logging.getLogger("distributed").handlers
    with _critical_alone([handler for handler in handlers if isinstance(handler, logging.StreamHandler)]):
        yield


@contextmanager
def _critical_alone(places: Sequence[logging.Filterer]) -> Iterator[None]:
    def critical(record: logging.LogRecord) -> bool:
        return record.levelno >= logging.CRITICAL

    for place in places:
        place.addFilter(critical)
    try:
        yield
    finally:
        for place in places:
            place.removeFilter(critical)
