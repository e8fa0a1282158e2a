"""`compiled`: numba's njit, loaded when a kernel is first worth it, with its machine code cached on disk where there is
a place for it; and a report of whether kernels are being compiled just now."""

from __future__ import annotations

import queue
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any, Generic, ParamSpec, TypeVar, cast

STEPS_BEFORE_IMPORTING = 300_000
"""Inner steps that Python runs, in all calls of a kernel together, before numba is imported: about 0.3 s. To import it
and to load the first kernel of a process takes 0.35 to 1 s."""
STEPS_BEFORE_LOADING = 20_000
"""The same where numba is imported already, and the machine code only has to be loaded."""
STEPS_BEFORE_COMPILING = 300_000
"""The same where it would have to be compiled, which takes 0.3 s and more."""


Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


def compiled(
    *, steps: Callable[..., int] | None = None, in_python: Callable[..., Any] | None = None, **options: Any
) -> Callable[[Callable[Parameters, Result]], Kernel[Parameters, Result]]:
    """Decorator: a kernel, compiled by numba with these options, which releases the GIL while it runs.

    The first call ever takes about a second; later processes load the machine code from disk. numba invalidates that
    cache by the source file of the function alone, so a kernel must not read constants of other modules: pass them as
    arguments. A kernel copies arrays in loops: `a[:] = b` takes 1.5 s longer to compile, for the text of an error.

    `steps` gets the arguments of a call and returns about how many inner steps it takes. Few are run by Python, which
    is quicker than to load numba, and much quicker than to compile; the results are the same to the last bit, so it
    must not be given where numba's `log` or `exp` differ from Python's. Python runs `in_python`, where it is given, in
    place of the kernel's own loops: the same with numpy, a microsecond a step.
    """

    def decorate(function: Callable[Parameters, Result]) -> Kernel[Parameters, Result]:
        return Kernel(cast(FunctionType, function), steps, options, in_python)

    return decorate


class Kernel(Generic[Parameters, Result]):
    """A function that is compiled when first worth it."""

    def __init__(
        self,
        function: FunctionType,
        steps: Callable[..., int] | None,
        options: dict[str, Any],
        in_python: Callable[..., Any] | None = None,
    ) -> None:
        self.function = function
        self._steps, self._options = steps, options
        self._interpreted_steps = 0
        self._worth_it = steps is None
        self._dispatcher: Any = None
        self._interpreted: Any = in_python
        self._lock = threading.RLock()
        self.__doc__, self.__name__ = function.__doc__, function.__name__

    def __call__(self, *args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        """Run it: as machine code where that is loaded or worth it, otherwise by Python."""
        if not self._worth_it:
            assert self._steps is not None, "a kernel without a number of steps is always compiled"
            self._interpreted_steps += self._steps(*args)
            if self._is_small():
                result: Result = self.interpreted(*args, **kwargs)
                return result
            self._worth_it = True
        dispatcher = self._dispatcher or self.dispatcher
        compiled_result: Result = dispatcher(*args, **kwargs)
        return compiled_result

    def _is_small(self) -> bool:
        """Whether the calls so far are fewer steps than loading the machine code, or compiling, is worth."""
        if "numba" not in sys.modules:
            return self._interpreted_steps <= STEPS_BEFORE_IMPORTING
        if self._interpreted_steps <= STEPS_BEFORE_LOADING:
            return True
        return self._interpreted_steps <= STEPS_BEFORE_COMPILING and not self.on_disk

    @property
    def on_disk(self) -> bool:
        """Whether machine code seems to lie in numba's cache; only the call itself tells whether it is of this code."""
        code = self.function.__code__
        folder = self.dispatcher.stats.cache_path
        name = f"{Path(code.co_filename).stem}.{self.function.__qualname__}-{code.co_firstlineno}.*.nbi"
        return folder is not None and any(Path(folder).glob(name))

    @property
    def dispatcher(self) -> Any:
        """numba's dispatcher, which compiles at its first call with arguments of some types."""
        with self._lock:
            if self._dispatcher is None:
                self._dispatcher = self._make_dispatcher()
            return self._dispatcher

    def _make_dispatcher(self) -> Any:
        from numba import njit  # late: it takes 0.15 s

        function, namespace = self._with_own_globals(lambda kernel: kernel.dispatcher)
        try:
            dispatcher = njit(cache=True, nogil=True, **self._options)(function)
        except RuntimeError:
            # Neither the package's folder nor the user's cache folder is writable: every process compiles anew.
            dispatcher = njit(nogil=True, **self._options)(function)
        namespace[self.__name__] = dispatcher
        return dispatcher

    @property
    def interpreted(self) -> Any:
        """The function run by Python, with all that it calls."""
        with self._lock:
            if self._interpreted is None:
                function, namespace = self._with_own_globals(lambda kernel: kernel.interpreted)
                self._interpreted = namespace[self.__name__] = function
            return self._interpreted

    def _with_own_globals(self, of: Callable[[Kernel[..., Any]], Any]) -> tuple[FunctionType, dict[str, Any]]:
        """A copy of the function, and its globals, in which `of` replaces the other kernels."""
        namespace = dict(self.function.__globals__)
        for name in _names(self.function.__code__):
            value = namespace.get(name)
            if isinstance(value, Kernel) and value is not self:
                namespace[name] = of(value)
        function = FunctionType(self.function.__code__, namespace, self.__name__, self.function.__defaults__)
        function.__qualname__, function.__module__ = self.function.__qualname__, self.function.__module__
        function.__doc__ = self.function.__doc__
        return function, namespace


def _names(code: CodeType) -> set[str]:
    """The global names that some code reads, nested functions included."""
    nested = (_names(part) for part in code.co_consts if isinstance(part, CodeType))
    return set(code.co_names).union(*nested)


@contextmanager
def compilation_reported(report: Callable[[bool], None]) -> Iterator[None]:
    """In the block, call `report(True)` when a kernel begins to be compiled in this process, on any thread, and
    `report(False)` when none is any more. Machine code that is loaded from disk is not reported.

    The calls come from a thread of their own: numba holds its lock while it compiles, and `report` may take another.
    """
    from numba.core import event

    reports: queue.SimpleQueue[bool | None] = queue.SimpleQueue()

    def pass_on() -> None:
        for compiling in iter(reports.get, None):
            report(compiling)

    threading.Thread(target=pass_on, name="alpa-explore compilation", daemon=True).start()
    counter = UnderWay(reports.put)
    listener = _listener(counter)
    try:
        with event.install_listener("numba:compile", listener):
            yield
    finally:
        counter.stop()
        reports.put(None)


def _listener(counter: UnderWay) -> Any:
    """numba's listener that tells `counter` of every compilation."""
    from numba.core import event

    class Listener(event.Listener):
        def on_start(self, _event: object) -> None:
            counter.begin()

        def on_end(self, _event: object) -> None:
            counter.end()

    return Listener()


class UnderWay:
    """Counts what is under way, one inside the other or on several threads: calls `changed(True)` when the first one
    begins and `changed(False)` when the last one has ended."""

    def __init__(self, changed: Callable[[bool], None]) -> None:
        self._changed = changed
        self._lock = threading.Lock()
        self._count = 0

    def begin(self) -> None:
        """One begins."""
        with self._lock:
            self._count += 1
            if self._count == 1:
                self._changed(True)

    def end(self) -> None:
        """One has ended; it may have begun before anything was counted."""
        with self._lock:
            self._count -= 1
            if self._count == 0:
                self._changed(False)

    def stop(self) -> None:
        """Report the end of those that go on."""
        with self._lock:
            if self._count > 0:
                self._changed(False)
