"""Launch a plan: lower it, write the folder of the run, start its ranks, and watch them.

Nothing here blocks the caller: a run is prepared and watched in a thread of its own (`run.Run`).
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from alpa_explore.arguments import checked
from alpa_explore.errors import AlpaExploreError, CheckpointError, OptionError
from alpa_explore.graph import TrainingGraph
from alpa_explore.graph.written import carried, listed, unwritten
from alpa_explore.models.recipe import check_recipe
from alpa_explore.plans.file.document import save_plan
from alpa_explore.plans.plan import Plan
from alpa_explore.plans.rebuild import rebuild
from alpa_explore.programs.check import check
from alpa_explore.programs.lowering.decision import program_schedule
from alpa_explore.programs.lowering.lower import lower
from alpa_explore.programs.program import Program
from alpa_explore.runtime.attempts import Attempt, Replan, check_again, check_replanned, cluster_left, plan_again, words
from alpa_explore.runtime.checkpoints.description import (
    MOST_SEED,
    Description,
    checkpoints_of,
    find_checkpoint,
    model_digest,
)
from alpa_explore.runtime.checkpoints.layout import model_tensors, optimizer_tensors
from alpa_explore.runtime.checkpoints.stored import StoredState
from alpa_explore.runtime.folder import attempt_folder, attempts_of, empty_folder, make_folder, replace_text
from alpa_explore.runtime.job import RunOptions, write_jobs
from alpa_explore.runtime.run import Run
from alpa_explore.runtime.targets.target import Left, Target, find_target
from alpa_explore.runtime.training import Data, OwnModel, own_model, training
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
    resumed: Description | None = None
    """The checkpoint in `options.resume`."""
    resume_from: str | None = None
    """The run, or the checkpoint, that the user named."""
    passed_over: tuple[str, ...] = ()
    """Newer checkpoints than that, which cannot be used, each with the reason."""
    retries: int = 0
    replan: Replan | None = None
    frozen_buffers: bool = False


@checked("plan", "target", "folder")
def launch(plan: Plan, target: str = "local", *, folder: str | os.PathLike[str] | None = None, **requested: Any) -> Run:
    """Train with `plan`, one process for each of its devices. Returns a handle at once.

    `requested` are the arguments of `request_of`: steps, data, and more. `folder` is where the run keeps its logs, by
    default a new folder in `runs_folder()`. A run that is impossible here is refused before anything is started; later
    errors are raised by the handle's `result`.
    """
    request = request_of(plan, target, **requested)
    home = make_folder(folder, plan.model.name)
    # `verify` compares the recorded gradients with the inputs in the job.
    options = request.options
    run = Run(home, _ranks(plan), options.steps, keep_job=options.record, first_step=options.first_step)
    device = options.device
    last = _Requests(request)
    again = partial(_next_attempt, last, run) if request.retries else None

    def first() -> Program:
        whole = last.request = _from_whole_checkpoint(request)
        run.begin(whole.options.first_step, whole.passed_over)
        return prepare(whole, home)

    run.watch(first, lambda: request.place.start(home, plan, device), again)
    return run


def _from_whole_checkpoint(request: RunRequest) -> RunRequest:
    """The same request, which goes on from the newest checkpoint whose content is what was written."""
    if request.resume_from is None or request.resumed is None:
        return request
    checkpoint, resumed, passed_over = find_checkpoint(request.resume_from, digests=True)
    options = request.options
    made_up = request.own is not None and request.own.data is None
    _check_resumable(request.plan, resumed, options.steps, options.seed, made_up=made_up)
    rate = options.learning_rate
    options = replace(
        options,
        resume=str(checkpoint),
        first_step=resumed.step,
        learning_rate=resumed.learning_rate if rate == request.resumed.learning_rate else rate,
    )
    return replace(request, options=options, resumed=resumed, passed_over=passed_over)


class _Requests:
    """The request of the last attempt of a run."""

    def __init__(self, request: RunRequest) -> None:
        self.request = self.first = request


def _next_attempt(last: _Requests, run: Run, error: AlpaExploreError | None, number: int) -> Attempt:
    """The attempt that follows number `number`, which ended with `error`: see `Again`."""
    request, first, home = last.request, last.first, run.folder
    if error is not None:
        check_again(error, 1 + sum(retry.failed for retry in run.progress.retries), request.retries)
    assert request.place.left is not None, "other targets have no retries"
    left = request.place.left(first.plan, request.options.device, () if error is None else error.lost)
    plan, schedule = _plan_for(left, first, request)
    where = [f"on {left.hosts}"] if left.hosts else []
    if plan is not request.plan:
        where.insert(0, f"under another plan, {words(plan)}")
    try:
        found = find_checkpoint(home, digests=True)
        request = replace(
            request,
            options=replace(request.options, resume=str(found.folder), first_step=found.description.step),
            resumed=found.description,
            passed_over=found.passed_over,
        )
    except CheckpointError as none:  # of this run: from where this run began
        request = _from_whole_checkpoint(request)
        if any(checkpoints_of(attempt) for attempt in attempts_of(home)):
            request = replace(request, passed_over=(f"{none.what}: {none.found}", *request.passed_over))
    run.note_passed_over(request.passed_over)
    options, resumed = request.options, request.resumed
    if resumed is not None:
        made_up = request.own is not None and request.own.data is None
        _check_resumable(plan, resumed, options.steps, None, made_up=made_up)
    request = last.request = replace(request, plan=plan, schedule=schedule)
    folder, used = attempt_folder(home, number + 1), plan.cluster.devices
    return Attempt(
        folder=folder,
        ranks=_ranks(plan),
        first_step=options.first_step,
        all_back=partial(_all_back, first) if used < first.plan.cluster.devices else None,
        prepare=lambda: prepare(request, empty_folder(folder, "an attempt", make=True)),
        start=lambda: left.start(folder, plan, options.device),
        where=", ".join(where),
    )


def _plan_for(left: Left, first: RunRequest, request: RunRequest) -> tuple[Plan, str | Schedule | None]:
    """The plan and the schedule for what is left: those of the first attempt where all is there, those of the last one
    where it used as much, else others. A table of a schedule is for the stages of the first plan alone."""
    if left.nodes * left.devices_per_node >= first.plan.cluster.devices:
        return first.plan, first.schedule
    schedule, used = first.schedule if isinstance(first.schedule, str) else None, request.plan.cluster
    if (left.nodes, left.devices_per_node) == (used.nodes, used.devices_per_node):
        return request.plan, schedule
    cluster = cluster_left(first.plan, left.nodes, left.devices_per_node)
    if request.replan is None:
        return plan_again(first.plan, cluster, request.graph, allow_import=request.allow_import), schedule
    plan = request.replan(first.plan, cluster)
    check_replanned(plan, first.plan, cluster)
    return plan, schedule


def _all_back(first: RunRequest) -> bool:
    """Whether as many devices answer as the run began with. With some of them it would need a plan that may not exist,
    and a run that goes well must not end for that."""
    assert first.place.left is not None, "other targets have no retries"
    left = first.place.left(first.plan, first.options.device, ())
    return left.nodes * left.devices_per_node >= first.plan.cluster.devices


def _ranks(plan: Plan) -> tuple[int, ...]:
    return tuple(sorted(d for stage in plan.stages for d in stage.devices))


def request_of(
    plan: Plan,
    target: str = "local",
    *,
    steps: int = 10,
    learning_rate: float | None = None,
    seed: int | None = None,
    schedule: str | Schedule | None = None,
    device: str | None = None,
    save: str | os.PathLike[str] | None = None,
    record: bool = False,
    stall_seconds: float = 60.0,
    checkpoint_every: int | None = None,
    resume: str | os.PathLike[str] | None = None,
    retries: int = 0,
    replan: Replan | None = None,
    model: torch.nn.Module | None = None,
    example_inputs: Any = None,
    loss: Any = None,
    data: Data | None = None,
    graph: TrainingGraph | None = None,
    allow_import: bool = False,
    scheduler: Any = None,
    ports: str | None = None,
    image: str | None = None,
    claim: str | None = None,
    frozen_buffers: bool = False,
) -> RunRequest:
    """Check that a run is possible, and describe it.

    Model and data come from the plan's recipe (an import path is followed only with `allow_import`), or are `model`, as
    it was captured, and `data`: microbatches, or a function number -> microbatch. With `example_inputs` and no data,
    microbatches are made up from them. `schedule` is a name or a table; the default is the plan's own. `graph` is
    needed for a plan from a file without a recipe. `learning_rate` is 0.001 and `seed` is 0 by default. `save` is a
    folder for the trained weights; `record` keeps every gradient in the folder of the run. `target` is local; torchrun
    or slurm (writes a script and starts nothing); kubernetes (likewise a PyTorchJob, with `image` the name of a
    container image and `claim` that of a volume claim with the folder of the run); or dask, with `scheduler` a Dask
    client or address. `ports` ("29500-29600") is where rank 0 listens while the ranks meet; local needs none.

    `data` as a function is sent to every rank, not what it reads: it is called there with the number of a microbatch,
    counted over all steps, and returns the whole microbatch, of which the rank takes its part. Let it open its files
    when it is called; on the targets dask and kubernetes, files must be where it looks for them on every host, while
    the function comes along with the user's own modules that it needs. A function with a parameter `place=None` gets a
    `training.Place`: the rank, the number of ranks, and the samples that this rank needs; in what it returns, others
    may be anything. None asks for all samples. A list is sent whole.

    `checkpoint_every` is a number of steps: after each so many, and after the last, the run writes its whole state, of
    which it keeps the last two (`runtime.checkpoints`); ranks copy their state and write it while training goes on.
    `resume` is the folder of a run, for its newest whole checkpoint, or of one checkpoint: training goes on from it,
    under this plan, which may have other stages, sharding, devices and schedule. `steps` are those of the whole
    training. Learning rate and seed are then the checkpoint's by default; another learning rate is allowed. With other
    microbatches of the same global batch the same samples are used, cut otherwise; `data` is asked for the microbatches
    of this plan by number, counted from the first step.

    `retries` is how often the run goes on from its last whole checkpoint after a fault that may not happen again: a
    process, host or link that is lost. At most the steps of `checkpoint_every` are done again, and twice so many where
    a checkpoint was being written: ranks begin none before the last one is whole. It goes on with the hosts that are
    left; where they are too few for the plan, `replan(plan, cluster)` returns one for what is left, by default the
    planner's for the same microbatches. When all answer again, it goes on with them from its next checkpoint, under the
    first plan; that is no retry.

    Buffers that the forward pass of the module writes are carried from microbatch to microbatch, with the statistics of
    a whole microbatch, and are part of checkpoints. Where a run cannot write one on which losses depend
    (`Program.frozen`), it is refused, unless `frozen_buffers` says that such buffers keep their first values.

    UnknownNameError, OptionError (with the number of missing devices), ProgramError (a schedule that no program can
    follow), RecipeError and CheckpointError.
    """
    chosen = find_target(target, scheduler, ports=ports, image=image, claim=claim)
    if steps < 1:
        raise OptionError("A run has at least one step", found=f"{steps}", remedy="Give 1 or more.")
    _check_numbers(learning_rate, seed, stall_seconds)
    if checkpoint_every is not None and checkpoint_every < 1:
        raise OptionError(
            "Checkpoints are one step or more apart", found=f"{checkpoint_every}", remedy="Give 1 or more, or none."
        )
    _check_retries(retries, checkpoint_every, replan, chosen, target, record=record)
    device = device or ("cuda" if torch.cuda.is_available() else "cpu")
    if device not in ("cpu", "cuda"):
        raise OptionError("Unknown kind of device", found=repr(device), remedy="Use 'cpu' or 'cuda'.")
    chosen.check(plan, device)
    program_schedule(plan, schedule)
    own = own_model(model, example_inputs, loss, data)
    if own is None:
        check_recipe(plan.model.recipe, allow_import=allow_import)
    found = None if resume is None else find_checkpoint(resume)
    resumed = None if found is None else found.description
    if resumed is not None:
        if record:
            raise OptionError(
                "A resumed run cannot be compared with one process",
                found="resume= and record=True",
                remedy="Leave one of them away.",
            )
        _check_resumable(plan, resumed, steps, seed, made_up=model is not None and data is None)
    return RunRequest(
        plan=plan,
        resumed=resumed,
        resume_from=None if resume is None else os.fspath(Path(resume).absolute()),
        passed_over=() if found is None else found.passed_over,
        target=target,
        place=chosen,
        schedule=schedule,
        graph=graph,
        allow_import=allow_import,
        retries=retries,
        replan=replan,
        frozen_buffers=frozen_buffers,
        own=own,
        options=RunOptions(
            steps=steps,
            learning_rate=learning_rate if learning_rate is not None else resumed.learning_rate if resumed else 1e-3,
            seed=resumed.seed if resumed else seed or 0,
            device=device,
            checkpoint_every=checkpoint_every,
            wait_for_whole=retries > 0,
            resume=None if found is None else str(found.folder),
            first_step=resumed.step if resumed else 0,
            record=record,
            stall_seconds=stall_seconds,
            save=None if save is None else str(empty_folder(save, "weights", make=False)),
        ),
    )


def _check_numbers(learning_rate: float | None, seed: int | None, stall_seconds: float) -> None:
    if learning_rate is not None and not 0 <= learning_rate < math.inf:
        raise OptionError(
            "A learning rate is a number of 0 or more", found=f"{learning_rate}", remedy="Give one such as 0.001."
        )
    if seed is not None and not 0 <= seed <= MOST_SEED:
        raise OptionError("A seed is a whole number of 0 to 2⁶³ − 1", found=f"{seed:.6g}", remedy="Give one such as 0.")
    if not 0 < stall_seconds < math.inf:
        raise OptionError(
            "A run stalls after some seconds", found=f"{stall_seconds}", remedy="Give --stall-seconds above 0."
        )


def _check_retries(
    retries: int, checkpoint_every: int | None, replan: Replan | None, chosen: Target, target: str, *, record: bool
) -> None:
    if retries < 0:
        raise OptionError("A run cannot be retried so often", found=f"{retries}", remedy="Give 0 or more retries.")
    if retries and chosen.left is None:
        raise OptionError(
            "Only runs that are watched from here can be retried",
            found=f"retries={retries} with the target {target}, whose script is started by others",
            remedy="Use the target local or dask, or start the script again with --resume.",
        )
    if retries and checkpoint_every is None:
        raise OptionError(
            "A run can only be retried from checkpoints",
            found=f"retries={retries} without checkpoints",
            remedy="Give --checkpoint-every N (checkpoint_every=): so many steps are lost at most, and twice so many"
            " where one is being written.",
        )
    if retries and record:
        raise OptionError(
            "A run that is compared with one process cannot be retried",
            found=f"retries={retries} and record=True",
            remedy="Leave one of them away.",
        )
    if replan is not None and not retries:
        raise OptionError("Nothing is planned again without retries", found="replan= alone", remedy="Give retries=.")


def _check_resumable(plan: Plan, resumed: Description, steps: int, seed: int | None, *, made_up: bool) -> None:
    """OptionError where a run of `plan` cannot go on from a checkpoint; its model is compared when it is known."""
    samples, count = plan.model.samples, plan.options.num_microbatches
    if steps <= resumed.step:
        raise OptionError(
            "The checkpoint has all the steps",
            found=f"{steps} steps, {resumed.step} are done in the checkpoint",
            remedy=f"Give the steps of the whole training: {resumed.step + 1} or more.",
        )
    if samples * count != resumed.samples_per_iteration:
        raise OptionError(
            "The plan has another global batch than the checkpoint",
            found=f"{count} microbatches of {samples} samples, {resumed.samples_per_iteration} samples an iteration in"
            " the checkpoint",
            remedy=f"Plan with -B and a microbatch whose product is {resumed.samples_per_iteration}.",
        )
    if seed is not None and seed != resumed.seed:
        raise OptionError(
            "The checkpoint has another seed",
            found=f"{seed}, the data and random numbers of the checkpoint are those of seed {resumed.seed}",
            remedy="Leave the seed away.",
        )
    if made_up and samples != resumed.stream_samples:
        raise OptionError(
            "Made-up data cannot go on with other microbatches",
            found=f"{samples} samples a microbatch, {resumed.stream_samples} in the checkpoint",
            remedy="Give data=, or plan with the same microbatch.",
        )


def describe_run(request: RunRequest) -> dict[str, Any]:
    """Lower and check what `launch` would start, and describe it; nothing is written or started."""
    program = _program(rebuild(request.plan, request.graph, allow_import=request.allow_import), request.schedule)
    _check_written(program, frozen=request.frozen_buffers)
    return _document(request, program)


def prepare(request: RunRequest, folder: Path) -> Program:
    """Write everything that the ranks need into the folder of the run; returns the checked program."""
    plan, options = rebuild(request.plan, request.graph, allow_import=request.allow_import), request.options
    program = _program(plan, request.schedule)
    _check_written(program, frozen=request.frozen_buffers)
    resumed = request.resumed
    if resumed is not None:
        _check_checkpoint(Path(str(options.resume)), resumed, program)
    state, batches = training(
        program.graph,
        plan.model,
        request.own,
        seed=options.seed,
        allow_import=request.allow_import,
        stream_samples=None if resumed is None else resumed.stream_samples,
    )
    save_plan(plan, folder / "plan.json")
    write_jobs(folder, program, options, state, batches, send_code=request.target in ("dask", "kubernetes"))
    (folder / "schedule.csv").write_text(write_csv(program.schedule), encoding="utf-8")
    document = {**_document(request, program), "checkpoints": _facts(request, program, folder)}
    replace_text(folder / "run.json", json.dumps(document, indent=1))
    return program


def _check_written(program: Program, *, frozen: bool) -> None:
    """OptionError where losses depend on what the forward pass of the module writes and that of the ranks does not,
    unless that is to stay `frozen`."""
    graph = program.graph
    if not (names := carried(graph, program.frozen)) or frozen:
        return
    lone = set(names) - set(unwritten(graph))
    raise OptionError(
        "The loss depends on buffers that the forward pass writes, which this run does not",
        found=listed(names)
        + ("; one stage writes them and another reads them, or the schedule runs two copies of the model" * bool(lone)),
        remedy=("Plan fewer stages, or with schedule 1f1b; or c" if lone else "C")
        + "apture the model in a mode in which it reads them only (eval), or keep this state out of its forward pass;"
        " frozen_buffers=True (--frozen-buffers) trains with their first values.",
    )


def _check_checkpoint(checkpoint: Path, resumed: Description, program: Program) -> None:
    """CheckpointError where a checkpoint is of another model or optimizer, or lacks something."""
    if (optimizer := _optimizer(program)) != resumed.optimizer:
        raise CheckpointError(
            "The checkpoint is of another optimizer",
            found=f"{', '.join(resumed.optimizer)} in the checkpoint, {', '.join(optimizer)} in the plan",
            remedy="Capture the model with the optimizer of the checkpoint, and plan that.",
        )
    StoredState(checkpoint).check_model(model_tensors(program), optimizer_tensors(program))


def _optimizer(program: Program) -> tuple[str, ...]:
    graph = program.graph
    return tuple(sorted({graph.operators[p.update].kind for p in graph.parameters}))


def _facts(request: RunRequest, program: Program, folder: Path) -> dict[str, Any]:
    """What all checkpoints of the run say (`checkpoints.keeper.FACTS`)."""
    plan, options, resumed = request.plan, request.options, request.resumed
    # Microbatches of the user's own data have the size that the plan asks for; those of a recipe are cut anew.
    own_data = request.own is not None and request.own.data is not None
    return {
        "model": plan.model.name,
        "model_digest": model_digest(model_tensors(program)),
        "plan_digest": hashlib.sha256((folder / "plan.json").read_bytes()).hexdigest(),
        "seed": options.seed,
        "learning_rate": options.learning_rate,
        "optimizer": _optimizer(program),
        "samples_per_iteration": plan.model.samples * plan.options.num_microbatches,
        "stream_samples": resumed.stream_samples if resumed and not own_data else plan.model.samples,
    }


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
        **({"passed_over": request.passed_over} if request.passed_over else {}),
        **({"frozen_buffers": program.frozen} if program.frozen else {}),
    }
