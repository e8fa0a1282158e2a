"""`compiled`: numba's njit, kept on disk between runs where there is a place for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from numba import njit

Function = TypeVar("Function", bound=Callable[..., Any])


def compiled(**options: Any) -> Callable[[Function], Function]:
    """Decorator: compile at the first call, without the GIL; the first call ever takes a second, later runs load it."""

    def decorate(function: Function) -> Function:
        try:
            found: Function = njit(cache=True, nogil=True, **options)(function)
        except RuntimeError:
            # Neither the package's folder nor the user's cache can be written: compiled anew in every process.
            found = njit(nogil=True, **options)(function)
        return found

    return decorate
