"""Silence what dask logs when a scheduler goes: a traceback of many screens. Errors of ours report it in one line."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def quiet_client() -> Iterator[None]:
    """Of dask's clients, log only what is critical meanwhile; such contexts may overlap in any order."""

    def critical(record: logging.LogRecord) -> bool:
        return record.levelno >= logging.CRITICAL

    logger = logging.getLogger("distributed.client")
    logger.addFilter(critical)
    try:
        yield
    finally:
        logger.removeFilter(critical)
