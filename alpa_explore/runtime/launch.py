"""Launch a plan: lower it, write the folder of the run, start its ranks, and watch them.

Nothing here blocks the caller: a run is prepared and watched in a thread of its own (`run.Run`).
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from alpa_explore.errors import OptionError
from alpa_explore.graph import TrainingGraph
from alpa_explore.models.recipe import check_recipe
from alpa_explore.plans.file.write import save_plan
from alpa_explore.plans.plan import Plan
from alpa_explore.plans.rebuild import rebuild
from alpa_explore.programs.check import check
from alpa_explore.programs.lowering.lower import lower
from alpa_explore.programs.lowering.table import program_schedule
from alpa_explore.programs.program import Program
from alpa_explore.runtime.folder import empty_folder, make_folder
from alpa_explore.runtime.job import RunOptions, write_jobs
from alpa_explore.runtime.run import Run
from alpa_explore.runtime.targets.target import Target, find_target
from alpa_explore.runtime.training import Data, OwnModel, training
from alpa_explore.schedules.csv_file import write_csv
from alpa_explore.schedules.task import Schedule


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRequest:
    """A checked request for a run; made by `request_of`."""

    plan: Plan
    target: str
    place: Target
    schedule: str | Schedule | None
    options: RunOptions
    own: OwnModel | None = None
    graph: TrainingGraph | None = None
    allow_import: bool = False


def launch(plan: Plan, target: str = "local", *, folder: str | os.PathLike[str] | None = None, **options: Any) -> Run:
    """Train with `plan`, one process for each of its devices. Returns a handle at once.

    `options` are the arguments of `request_of`: steps, data, and more. `folder` is where the run keeps its logs, by
    default a new folder in `runs_folder()`. A run that is impossible here is refused before anything is started; later
    errors are raised by the handle's `result`.
    """
    request = request_of(plan, target, **options)
    home = make_folder(folder, plan.model.name)
    ranks = tuple(sorted(d for stage in plan.stages for d in stage.devices))
    # `verify` compares the recorded gradients with the inputs in the job.
    run = Run(home, ranks, request.options.steps, keep_job=request.options.record)
    device = request.options.device
    run.watch(lambda: prepare(request, home), lambda: request.place.start(home, plan, device))
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
    image: str | None = None,
    claim: str | None = None,
) -> RunRequest:
    """Check that a run is possible, and describe it.

    Model and data come from the plan's recipe (an import path is followed only with `allow_import`), or are `model`, as
    it was captured, and `data`: microbatches, or a function number -> microbatch. With `example_inputs` and no data,
    microbatches are made up from them. `schedule` is a name or a table; the default is the plan's own. `graph` is
    needed for a plan from a file without a recipe. `save` is a folder for the trained weights (`checkpoint`); `record`
    keeps every gradient in the folder of the run. `target` is local; torchrun or slurm (writes a script and starts
    nothing); kubernetes (likewise a PyTorchJob, with `image` the name of a container image and `claim` that of a volume
    claim with the folder of the run); or dask, with `scheduler` a Dask client or address.

    UnknownNameError, OptionError (with the number of missing devices), ProgramError (a schedule that no program can
    follow) and RecipeError.
    """
    chosen = find_target(target, scheduler, image=image, claim=claim)
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
    return RunRequest(
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
            save=None if save is None else str(empty_folder(save, "weights", make=False)),
        ),
    )


def describe_run(request: RunRequest) -> dict[str, Any]:
    """Lower and check what `launch` would start, and describe it; nothing is written or started."""
    program = _program(rebuild(request.plan, request.graph, allow_import=request.allow_import), request.schedule)
    return _document(request, program)


def prepare(request: RunRequest, folder: Path) -> Program:
    """Write everything that the ranks need into the folder of the run; returns the checked program."""
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


def _document(request: RunRequest, program: Program) -> dict[str, Any]:
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
