"""Launch a plan: lower it, write the folder of the run, start its ranks, and watch them.

Nothing here blocks its caller: a run is prepared and watched in a thread of its own.
"""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from alpa_explore.errors import AlpaExploreError, OptionError, RunError
from alpa_explore.graph import TrainingGraph
from alpa_explore.models.recipe import check_recipe
from alpa_explore.plans.file.write import save_plan
from alpa_explore.plans.plan import Plan
from alpa_explore.plans.rebuild import rebuild
from alpa_explore.programs.check import check
from alpa_explore.programs.lowering.lower import lower
from alpa_explore.programs.lowering.table import program_schedule
from alpa_explore.programs.program import Program
from alpa_explore.runtime.job import RunOptions, write_jobs
from alpa_explore.runtime.measured import write_measured
from alpa_explore.runtime.reports import StepReader, StepReport, log_tail
from alpa_explore.runtime.targets.find import Ranks, Target, find_target
from alpa_explore.runtime.training import Data, OwnModel, training
from alpa_explore.schedules.csv_file import write_csv
from alpa_explore.schedules.task import Schedule

POLL_SECONDS = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class RunProgress:
    """How far a run is."""

    state: str
    """'preparing', 'running', 'done', 'failed', 'stopped', or 'written' where a script is to be run."""
    steps: tuple[StepReport, ...]
    """Those that are done."""
    total: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResult:
    """A run that came to its end."""

    steps: tuple[StepReport, ...]
    folder: Path
    stopped: bool
    """Whether `stop` ended it."""


class Run:
    """The handle of a run; all of its methods return at once but `result`."""

    def __init__(self, folder: Path, ranks: tuple[int, ...], total: int, *, keep_job: bool) -> None:
        self.folder, self.ranks = folder, ranks
        self._total, self._keep_job = total, keep_job
        self._steps = StepReader(folder, ranks)
        self._state = "preparing"
        self._error: AlpaExploreError | None = None
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def __repr__(self) -> str:
        done = self.progress
        return f"<Run {done.state}, {len(done.steps)} of {done.total} steps, in {self.folder}>"

    @property
    def progress(self) -> RunProgress:
        """Steps, losses and seconds until now."""
        state = self._state
        return RunProgress(state=state, steps=self._steps(), total=self._total)

    def stop(self) -> None:
        """Ask the run to end; its ranks are gone within seconds."""
        self._stop.set()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait for the end, however it comes; False when `timeout` seconds have passed before."""
        assert self._thread is not None, "a run is watched from its start"
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def result(self, timeout: float | None = None) -> RunResult:
        """Wait for the end. RunError, with the end of the log of the rank at fault as its note, where the run failed;
        what kept it from being prepared; TimeoutError when `timeout` seconds have passed."""
        if not self.wait(timeout):
            raise TimeoutError(f"the run in {self.folder} goes on")
        if self._error is not None:
            raise self._error
        return RunResult(steps=self._steps(), folder=self.folder, stopped=self._state == "stopped")

    def _watch(self, prepare: Callable[[], object], start: Callable[[], Ranks]) -> None:
        def work() -> None:
            try:
                prepare()
                self._state = self._watched(start)
            except AlpaExploreError as error:
                self._error, self._state = error, "failed"
            except Exception as error:  # of a thread that nobody sees: `result` raises it
                self._error, self._state = _fault(error), "failed"
                self._error.__cause__ = error

        self._thread = threading.Thread(target=work, name="alpa-explore run", daemon=True)
        self._thread.start()

    def _watched(self, start: Callable[[], Ranks]) -> str:
        if self._stop.is_set():
            return "stopped"
        ranks = start()
        try:
            self._state = "running"
            while (outcome := ranks.poll()) is None:
                if self._stop.wait(POLL_SECONDS):
                    ranks.stop()
        finally:
            ranks.stop()
        if outcome["state"] == "failed":
            tail = "" if outcome["rank"] is None else log_tail(self.folder, outcome["rank"])
            remedy = outcome["remedy"] + f" Logs: {self.folder}."
            self._error = RunError(outcome["what"], found=outcome["found"], remedy=remedy)
            if tail:
                self._error.add_note(tail)
        if outcome["state"] == "done":
            write_measured(self.folder)
        if not self._keep_job and outcome["state"] != "written":
            shutil.rmtree(self.folder / "job", ignore_errors=True)
        return str(outcome["state"])


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What a run is to be; `request_of` makes and checks it."""

    plan: Plan
    target: str
    place: Target
    schedule: str | Schedule | None
    options: RunOptions
    own: OwnModel | None = None
    graph: TrainingGraph | None = None
    allow_import: bool = False


_DISK = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EFBIG)
"""What a disk says that takes no more, or nothing at all."""


def _fault(error: Exception) -> RunError:
    """What is told of an error that is none of ours: of the disk, of the user's data or scheduler, or a bug."""
    if isinstance(error, OSError) and error.errno in _DISK:
        return RunError(
            "The folder of the run cannot be written",
            found=str(error),
            remedy="Free some space, or name a folder on another disk (--folder, folder=).",
        )
    remedy = (
        "Mend what it names: files of the data, or the connection to the scheduler."
        if isinstance(error, OSError)
        else "This is a fault of alpa_explore: please report it."
    )
    return RunError("The run could not be prepared", found=f"{type(error).__name__}: {error}", remedy=remedy)


def launch(plan: Plan, target: str = "local", *, folder: str | os.PathLike[str] | None = None, **asked: Any) -> Run:
    """Train `plan`, on every device of it a process. Returns at once; the handle says how it goes.

    `asked` is what `request_of` takes: steps, data, and more. `folder` is where the run keeps its logs, by default a
    new one in `runs_folder()`. What cannot be run here is refused before anything is started; what goes wrong later is
    raised by the handle's `result`.
    """
    request = request_of(plan, target, **asked)
    home = make_folder(folder, plan.model.name)
    ranks = tuple(sorted(d for stage in plan.stages for d in stage.devices))
    # What was recorded is compared with what the ranks were given.
    run = Run(home, ranks, request.options.steps, keep_job=request.options.record)
    device = request.options.device
    run._watch(lambda: prepare(request, home), lambda: request.place.start(home, plan, device))
    return run


def request_of(
    plan: Plan,
    target: str = "local",
    *,
    steps: int = 10,
    learning_rate: float = 1e-3,
    seed: int = 0,
    schedule: str | Schedule | None = None,
    device: str | None = None,
    save: str | os.PathLike[str] | None = None,
    record: bool = False,
    stall_seconds: float = 60.0,
    model: torch.nn.Module | None = None,
    example_inputs: Any = None,
    loss: Any = None,
    data: Data | None = None,
    graph: TrainingGraph | None = None,
    allow_import: bool = False,
    scheduler: Any = None,
) -> Request:
    """What a run is to be, where it can be.

    Model and data are those of the plan's recipe (an import path only with `allow_import`), or `model`, as it was
    captured, with `data`: microbatches, or a function number -> microbatch. With `example_inputs` alone, data are made
    up from them. `schedule` is a name or a table, the plan's own unless given. `graph` is needed for a plan from a file
    without a recipe. `save` is a folder for the trained weights (`checkpoint`), `record` keeps every gradient in the
    folder of the run. `target` is local, torchrun or slurm (a script is written, nothing started), or dask, with
    `scheduler` a Dask client or address. UnknownNameError, OptionError (too few devices: how many are missing),
    ProgramError (a schedule that no program follows) and RecipeError.
    """
    chosen = find_target(target, scheduler)
    if steps < 1:
        raise OptionError("A run has at least one step", found=f"{steps}", remedy="Give 1 or more.")
    device = device or ("cuda" if torch.cuda.is_available() else "cpu")
    if device not in ("cpu", "cuda"):
        raise OptionError("Unknown kind of device", found=repr(device), remedy="Use 'cpu' or 'cuda'.")
    chosen.check(plan, device)
    program_schedule(plan, schedule)
    if model is None:
        check_recipe(plan.model.recipe, allow_import=allow_import)
    elif example_inputs is None and data is None:
        raise OptionError(
            "A model of your own needs data",
            found="model= alone",
            remedy="Give data= (a list of microbatches, or a function number -> microbatch), or example_inputs=.",
        )
    return Request(
        plan=plan,
        target=target,
        place=chosen,
        schedule=schedule,
        graph=graph,
        allow_import=allow_import,
        own=None if model is None else OwnModel(model=model, example_inputs=example_inputs, loss=loss, data=data),
        options=RunOptions(
            steps=steps,
            learning_rate=learning_rate,
            seed=seed,
            device=device,
            record=record,
            stall_seconds=stall_seconds,
            save=None if save is None else str(_empty(save, "weights", make=False)),
        ),
    )


def describe_run(request: Request) -> dict[str, Any]:
    """What `launch` would start, lowered and checked; nothing is written or started."""
    program = _program(rebuild(request.plan, request.graph, allow_import=request.allow_import), request.schedule)
    return _document(request, program)


def prepare(request: Request, folder: Path) -> Program:
    """Write all that the ranks need into the folder of the run; the checked program."""
    plan, options = rebuild(request.plan, request.graph, allow_import=request.allow_import), request.options
    program = _program(plan, request.schedule)
    state, batches = training(
        program.graph, plan.model, request.own, seed=options.seed, allow_import=request.allow_import
    )
    save_plan(plan, folder / "plan.json")
    write_jobs(folder, program, options, state, batches)
    (folder / "schedule.csv").write_text(write_csv(program.schedule), encoding="utf-8")
    (folder / "run.json").write_text(json.dumps(_document(request, program), indent=1), encoding="utf-8")
    return program


def _program(plan: Plan, schedule: str | Schedule | None) -> Program:
    program = lower(plan, schedule)
    check(program)
    return program


def _document(request: Request, program: Program) -> dict[str, Any]:
    plan = request.plan
    return {
        "format": "alpa_explore.run",
        "version": 1,
        "model": plan.model.name,
        "target": request.target,
        "schedule": program.schedule.name,
        "num_microbatches": plan.options.num_microbatches,
        "samples_per_microbatch": plan.model.samples,
        "ranks": program.ranks,
        "stages": [stage.ranks for stage in program.stages],
        "instructions": program.instruction_count,
        "predicted_iteration_seconds": plan.predicted.iteration_seconds,
        "options": asdict(request.options),
    }


def runs_folder() -> Path:
    """Where the folders of runs are that were given none: $ALPA_EXPLORE_RUNS, else alpa-runs in the current folder."""
    return Path(os.environ.get("ALPA_EXPLORE_RUNS") or "alpa-runs")


def make_folder(folder: str | os.PathLike[str] | None, name: str) -> Path:
    """The folder of a new run: the one given, which must be new or empty, or a new one in `runs_folder`."""
    if folder is None:
        stem = re.sub(r"[^\w.-]", "_", name)[:60] + time.strftime("-%Y%m%d-%H%M%S")
        runs = runs_folder()
        taken = [p.name for p in runs.iterdir()] if runs.is_dir() else []
        same = sum(1 for other in taken if other.startswith(stem))
        folder = runs / (f"{stem}-{same + 1}" if same else stem)
    return _empty(folder, "a run", make=True)


def _empty(folder: str | os.PathLike[str], what: str, *, make: bool) -> Path:
    """A folder that is empty, or not there yet."""
    home = Path(folder).absolute()
    try:
        if make:
            home.mkdir(parents=True, exist_ok=True)
        if home.exists() and any(home.iterdir()):
            raise OptionError(
                f"The folder of {what} must be empty",
                found=str(home),
                remedy="Name another one, or remove what is there.",
            )
    except OSError as error:
        raise OptionError(
            f"The folder of {what} cannot be used",
            found=f"{home}: {error.strerror or error}",
            remedy="Name a folder in which you may write.",
        ) from error
    return home
