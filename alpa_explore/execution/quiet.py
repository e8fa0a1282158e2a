"""Silence what dask logs: the lines of a cluster of ours, and the traceback of many screens when a scheduler goes.
Errors of ours report it in one line."""

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager


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
