"""`compiled`: numba's njit, with its machine code cached on disk where there is a place for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from numba import njit

Function = TypeVar("Function", bound=Callable[..., Any])


def compiled(**options: Any) -> Callable[[Function], Function]:
    """Decorator: compile the function at its first call, and release the GIL while it runs.

    The first call ever takes about a second; later processes load the machine code from disk. numba invalidates that
    cache by the source file of the function alone, so a kernel must not read constants of other modules: pass them as
    arguments. A kernel copies arrays in loops: `a[:] = b` takes 1.5 s longer to compile, for the text of an error.
    """

    def decorate(function: Function) -> Function:
        try:
            dispatcher: Function = njit(cache=True, nogil=True, **options)(function)
        except RuntimeError:
            # Neither the package's folder nor the user's cache folder is writable: every process compiles anew.
            dispatcher = njit(nogil=True, **options)(function)
        return dispatcher

    return decorate
