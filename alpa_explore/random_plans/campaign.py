"""Many random plans, each against one process, on forked processes; failures are shrunk and kept as plan files.

Graphs are captured once, before the workers are forked. Every plan is interpreted; a share is launched as well: written
to a plan file, read again, and trained by a process a rank through torch.distributed.
"""

from __future__ import annotations

import multiprocessing
import os
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TypeVar

import torch

from alpa_explore.arguments import checked
from alpa_explore.errors import AlpaExploreError, OptionError, nearest_names
from alpa_explore.execution.executors import available_cores
from alpa_explore.execution.progress import ProgressCallback, TaskCount
from alpa_explore.plans.plan import load_plan
from alpa_explore.random_plans import tuning
from alpa_explore.random_plans.draft import Draft
from alpa_explore.random_plans.draw import draw_draft
from alpa_explore.random_plans.families import OPTIMIZER_OF
from alpa_explore.random_plans.plan_maker import shared_maker
from alpa_explore.random_plans.shrink import Verdict, shrink, try_draft
from alpa_explore.runtime.folder import make_folder, release_folder
from alpa_explore.runtime.verify import verify

_A = TypeVar("_A")
_B = TypeVar("_B")


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried:
    """A plan and what came of it."""

    number: int
    draft: Draft
    verdict: Verdict
    processor_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """A plan that differs from one process, or did not run."""

    number: int
    how: str
    """'interpreted' or 'launched'."""
    drawn: str
    """The plan as it was drawn, in a line."""
    verdict: Verdict
    smallest: str
    """The smallest plan that shows it, in a line; the drawn one where it was not shrunk."""
    sharded: tuple[str, ...]
    """The choices of the smallest plan that are not the plainest: 'stage 0, mm_3 (operator): RS0 S0R → P0'."""
    file: Path | None
    """Its plan file; None where no plan could be made of it."""
    command: str
    """Repeats the failure."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Campaign:
    """What came of all plans."""

    seed: int
    plans: int
    """Interpreted plans."""
    compared: int
    """Comparisons of a loss, a gradient or a weight in them."""
    launched: int
    """How many of them were launched as well."""
    tolerance: float
    failures: tuple[Failure, ...]
    worst: tuple[float, int, str]
    """(largest relative error of a plan that passed, its number, where); above the tolerance where float64 agrees."""
    worst_launched: float
    """Largest relative error of a launched plan that passed; 0 where there is none."""
    counts: dict[str, dict[str, int]]
    """How many plans by family, schedule, devices, stages, and kinds of parallelism that they use."""
    processor_seconds: float
    """Of all trials; captures, shrinking and launched ranks not counted."""
    seconds: float
    """Wall-clock, all told."""

    @property
    def passed(self) -> bool:
        """Whether every plan equals one process."""
        return not self.failures


@checked("count", "seed", "first", "launched", "workers", "tolerance", "folder")
def verify_random(
    count: int,
    *,
    seed: int = 0,
    first: int = 0,
    families: Sequence[str] = (),
    launched: int = 0,
    workers: int | None = None,
    tolerance: float = tuning.TOLERANCE,
    folder: str | os.PathLike[str] | None = None,
    progress: ProgressCallback | None = None,
) -> Campaign:
    """Compare random plans number `first` to `first + count - 1` of `seed` with one process, two steps each.

    `launched` of them are also trained through torch.distributed on this machine. `families` are names of
    `families.OPTIMIZER_OF` (default: all). `workers` are processes (default: one for each core); with 1 no process is
    started. Plan files of failures are written into `folder`, by default a new one, which is made when there is a
    failure. OptionError for a bad number or an unknown family.
    """
    _check(count, first, families, launched, workers)
    started, chosen = time.perf_counter(), tuple(families) or tuple(OPTIMIZER_OF)
    with _one_thread():
        for name in chosen:
            shared_maker().family(name)
        numbers = range(first, first + count)
        processes = workers or available_cores()
        trials = _mapped(partial(_try_number, seed, chosen, tolerance), numbers, processes)
        tried = list(_counted("interpreted", trials, count, progress))
        failed = [one for one in tried if not one.verdict.passed]
        few = failed[: tuning.MOST_SHRUNK]
        smallest = list(_counted("shrunk", _mapped(partial(_shrunk, tolerance), few, processes), len(few), progress))
        home = _Home(folder, seed)
        failures = [home.failure(one, small) for one, small in zip(failed, smallest, strict=False)]
        failures += [home.failure(one, one) for one in failed[tuning.MOST_SHRUNK :]]
    passed = [one for one in tried if one.verdict.passed]
    within = [one for one in passed if one.verdict.relative_error <= tolerance]
    share = [within[k * len(within) // launched] for k in range(min(launched, len(within)))]
    errors = list(_counted("launched", (_launched(one, tolerance, home) for one in share), len(share), progress))
    worst = max(passed, key=lambda one: one.verdict.relative_error, default=None)
    return Campaign(
        seed=seed,
        plans=len(tried),
        compared=sum(one.verdict.compared for one in tried),
        launched=len(share),
        tolerance=tolerance,
        failures=(*failures, *(error for error in errors if isinstance(error, Failure))),
        worst=(0.0, -1, "") if worst is None else (worst.verdict.relative_error, worst.number, worst.verdict.where),
        worst_launched=max((error for error in errors if isinstance(error, float)), default=0.0),
        counts=_counts([one.draft for one in tried]) | {"uses": _sorted(use for t in tried for use in t.verdict.uses)},
        processor_seconds=sum(one.processor_seconds for one in tried),
        seconds=time.perf_counter() - started,
    )


def _check(count: int, first: int, families: Sequence[str], launched: int, workers: int | None) -> None:
    for what, number, least in (
        ("The number of random plans", count, 1),
        ("The number of the first plan", first, 0),
        ("The number of launched plans", launched, 0),
        ("The number of workers", 1 if workers is None else workers, 1),
    ):
        if number < least:
            raise OptionError(f"{what} is too small", found=f"{number}", remedy=f"Give {least} or more.")
    if launched > count:
        raise OptionError(
            "More plans are launched than there are", found=f"{launched} of {count}", remedy="Launch fewer."
        )
    for name in families:
        if name not in OPTIMIZER_OF:
            raise OptionError("Unknown family of models", found=repr(name), remedy=nearest_names(name, OPTIMIZER_OF))


@contextmanager
def _one_thread() -> Iterator[None]:
    """One thread a process: tensors are tiny, and OpenMP's threads do not survive a fork."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def _mapped(function: Callable[[_A], _B], items: Iterable[_A], processes: int) -> Iterator[_B]:
    """`function` of all items, in order; on forks of this process where there are several."""
    if processes == 1:
        yield from map(function, items)
        return
    with ProcessPoolExecutor(processes, mp_context=multiprocessing.get_context("fork")) as pool:
        try:
            yield from pool.map(function, items)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _counted(name: str, results: Iterable[_A], total: int, progress: ProgressCallback | None) -> Iterator[_A]:
    """The results as they come, each reported."""
    counter = TaskCount(name, total, progress)
    for result in results:
        counter.add()
        yield result


def _try_number(seed: int, families: Sequence[str], tolerance: float, number: int) -> Tried:
    start, maker = time.process_time(), shared_maker()
    draft = draw_draft(maker, seed, number, families)
    verdict = try_draft(maker, draft, tolerance)
    return Tried(number=number, draft=draft, verdict=verdict, processor_seconds=time.process_time() - start)


def _shrunk(tolerance: float, tried: Tried) -> Tried:
    draft, verdict = shrink(shared_maker(), tried.draft, tried.verdict, tolerance)
    return replace(tried, draft=draft, verdict=verdict)


class _Home:
    """The folder of plan files, made when there is one to write."""

    def __init__(self, folder: str | os.PathLike[str] | None, seed: int) -> None:
        self._given, self._seed, self._folder = folder, seed, None if folder is None else Path(folder)

    def write(self, draft: Draft, number: int) -> Path:
        """The plan file of a draft."""
        if self._folder is None or not self._folder.is_dir():
            self._folder = make_folder(self._given, "random-plans")
            release_folder(self._folder)
        file = self._folder / f"seed-{self._seed}-plan-{number}.plan.json"
        shared_maker().plan(draft).save(file)
        return file

    def failure(self, tried: Tried, smallest: Tried, how: str = "interpreted") -> Failure:
        """The failure of a plan, whose smallest form is written."""
        draft = smallest.draft
        command = f"alpa-explore verify --random 1 --first {tried.number} --seed {self._seed}"
        file = None
        try:
            file = self.write(draft, tried.number)
            flags = "--interpret --allow-import" if how == "interpreted" else "--allow-import"
            command = f"alpa-explore verify {file} {flags}"
        except (AlpaExploreError, ArithmeticError, LookupError, ValueError) as error:
            if tried.verdict.kind != type(error).__name__:  # else this is the failure itself: there is no plan
                raise
        return Failure(
            number=tried.number,
            how=how,
            drawn=str(tried.draft),
            verdict=smallest.verdict,
            smallest=str(draft),
            sharded=shared_maker().sharded(draft),
            file=file,
            command=command,
        )


def _launched(tried: Tried, tolerance: float, home: _Home) -> float | Failure:
    """The largest error of a plan that is written, read and launched; or its failure."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "a.plan.json"
        shared_maker().plan(tried.draft).save(file)
        try:
            made = verify(load_plan(file), steps=tuning.STEPS, tolerance=tolerance, device="cpu", allow_import=True)
        except AlpaExploreError as error:
            verdict = Verdict(relative_error=float("inf"), where=str(error), kind=type(error).__name__)
        else:
            if made.passed:
                return made.worst.relative_error
            where = f"{made.worst.what} {made.worst.name} in step {made.worst.step}"
            verdict = Verdict(relative_error=made.worst.relative_error, where=where, kind="difference")
    different = Tried(number=tried.number, draft=tried.draft, verdict=verdict, processor_seconds=0.0)
    return home.failure(different, different, "launched")


def _counts(drafts: Sequence[Draft]) -> dict[str, dict[str, int]]:
    kinds: dict[str, Callable[[Draft], object]] = {
        "family": lambda d: d.family,
        "schedule": lambda d: d.schedule,
        "devices": lambda d: d.devices,
        "stages": lambda d: len(d.stages),
    }
    return {name: _sorted(map(kind, drafts)) for name, kind in kinds.items()}


def _sorted(found: Iterable[object]) -> dict[str, int]:
    return {str(key): n for key, n in sorted(Counter(found).items(), key=lambda item: str(item[0]))}
