"""Compare a plan with one process: the loss, every gradient and every updated weight of a few steps.

`verify` trains on devices, a process a rank; `verify_interpreted` runs the same instructions in this process, which is
quicker where the ranks are many and the model is small. Both compare the run with the captured graph, and that graph
with the module itself in plain PyTorch. `runtime.reference` says how.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from alpa_explore.arguments import checked
from alpa_explore.errors import AlpaExploreError, OptionError
from alpa_explore.graph import TrainingGraph
from alpa_explore.plans.plan import Plan
from alpa_explore.plans.rebuild import rebuild
from alpa_explore.plans.schedule_stages import schedule_table
from alpa_explore.programs.check import check
from alpa_explore.programs.execution.execute import Values
from alpa_explore.programs.execution.interpret import interpret_steps
from alpa_explore.programs.lowering.decision import plan_decisions
from alpa_explore.programs.lowering.lower import lower
from alpa_explore.programs.program import Program
from alpa_explore.runtime.checkpoints.stored import StoredState
from alpa_explore.runtime.job import RankJob, read_job
from alpa_explore.runtime.launch import launch
from alpa_explore.runtime.reference.one_process import Difference, OneProcess, Verification, check_determined
from alpa_explore.runtime.reference.plain_module import ModuleCheck, check_module
from alpa_explore.runtime.reports import StepReader
from alpa_explore.runtime.targets.scripts import COMMANDS
from alpa_explore.runtime.training import Data, Microbatches, OwnModel, from_recipe, own_model, training
from alpa_explore.schedules.task import Schedule


@checked("plan", "steps", "tolerance", "graph", "folder")
def verify(
    plan: Plan,
    *,
    steps: int = 2,
    tolerance: float = 1e-5,
    graph: TrainingGraph | None = None,
    allow_import: bool = False,
    folder: str | os.PathLike[str] | None = None,
    **options: Any,
) -> Verification:
    """Train with `plan` for some steps on its devices and in one process, and compare. Waits for the end.

    `options` are the arguments of `launch`: target "dask" trains on the hosts of a `scheduler`. Raises as `launch`, and
    OptionError for a model that draws random numbers and for a target that only writes a script. The run is in `folder`
    and stays there; without one, in a temporary folder that is kept when the run fails.
    """
    if not options.pop("record", True):
        raise OptionError(
            "A run that is compared keeps its gradients", found="record=False", remedy="Leave record away."
        )
    if (target := options.get("target", "local")) in COMMANDS:
        raise OptionError(
            "A run is compared when it is over, and this target only writes a script",
            found=f"target {target!r}",
            remedy="Use the target local or dask.",
        )
    plan = rebuild(plan, graph, allow_import=allow_import)
    check_determined(plan_decisions(plan, schedule_table(plan, options.get("schedule")))[0].stage.layered.graph)
    temporary = None if folder is not None else Path(tempfile.mkdtemp(prefix="alpa-explore-verify-"))
    try:
        run = launch(
            plan,
            steps=steps,
            record=True,
            folder=temporary or folder,
            allow_import=allow_import,
            **{"frozen_buffers": True, **options},  # those that the module writes are named
        )
    except AlpaExploreError:
        if temporary is not None:
            temporary.rmdir()
        raise
    try:
        run.result()
    except AlpaExploreError:
        raise
    except BaseException:  # Ctrl-C leaves no process and no folder behind
        run.stop()
        run.wait()
        if temporary is not None:
            shutil.rmtree(temporary, ignore_errors=True)
        raise
    compared = differences(run.folder, run.ranks)
    job, state = read_job(run.folder, run.ranks[0])
    assert not isinstance(state, StoredState), "a resumed run is not recorded"
    if temporary is not None:
        shutil.rmtree(temporary, ignore_errors=True)
    own = {name: options.get(name) for name in ("model", "example_inputs", "loss", "data")}
    source = _source(plan, own, seed=job.options.seed, allow_import=allow_import)
    module = _module_check(job.program, source, state, _whole_batches(job), job.options.learning_rate)
    return _verification(run.ranks, steps, tolerance, compared, module)


def _source(plan: Plan, own: Mapping[str, Any], *, seed: int, allow_import: bool) -> OwnModel:
    """The module of a run: the user's own, or that of the plan's recipe."""
    source = own_model(**own)
    return source or from_recipe(plan.model, plan.model.samples, seed=seed, allow_import=allow_import)


def _whole_batches(job: RankJob) -> Callable[[int], Values]:
    """The microbatches of a run with all their samples, not only those of one rank."""
    return replace(job.batches, place=None) if isinstance(job.batches, Microbatches) else job.batches


def _module_check(
    program: Program, source: OwnModel, state: Values, batches: Callable[[int], Values], learning_rate: float
) -> ModuleCheck:
    """The module of `source` beside the graph of a program, on the microbatches of its first step."""
    microbatches = [batches(m) for m in range(program.schedule.num_microbatches)]
    return check_module(program.graph, source, state, microbatches, learning_rate, program.frozen)


def _verification(
    ranks: Sequence[int], steps: int, tolerance: float, run: tuple[Difference, ...], module: ModuleCheck
) -> Verification:
    return Verification(
        ranks=len(ranks),
        steps=steps,
        tolerance=tolerance,
        differences=(*run, *module.differences),
        written=module.written,
    )


def differences(folder: Path, ranks: tuple[int, ...]) -> tuple[Difference, ...]:
    """Compare a run that has recorded its gradients with one process, step by step."""
    job, state = read_job(folder, ranks[0])
    assert not isinstance(state, StoredState), "a resumed run is not recorded"
    reference = OneProcess(job.program.graph, state, job.options.learning_rate, job.program.frozen)
    count = job.program.schedule.num_microbatches
    batches = _whole_batches(job)
    compared: list[Difference] = []
    for report in StepReader(folder, ranks)():
        recorded = [torch.load(folder / f"step-{report.step}-rank-{rank}.pt") for rank in ranks]
        microbatches = [batches(report.step * count + m) for m in range(count)]
        compared += reference.step(report.step, microbatches, report.loss, recorded)
    return tuple(compared)


@checked("plan", "steps", "tolerance", "learning_rate", "seed", "model", "graph")
def verify_interpreted(
    plan: Plan,
    *,
    steps: int = 2,
    tolerance: float = 1e-5,
    schedule: str | Schedule | None = None,
    learning_rate: float = 1e-3,
    seed: int = 0,
    model: torch.nn.Module | None = None,
    example_inputs: Any = None,
    loss: Any = None,
    data: Data | None = None,
    graph: TrainingGraph | None = None,
    allow_import: bool = False,
) -> Verification:
    """As `verify`, but all ranks run in this process, under the reference interpreter; no other process is started.

    A plan without a recipe needs the `model` that was captured, and its `example_inputs` or `data`, as for `launch`.
    Raises as `rebuild` and `lower`, ProgramError where the ranks deadlock, OptionError for a model that draws random
    numbers.
    """
    plan = rebuild(plan, graph, allow_import=allow_import)
    program = lower(plan, schedule)
    check(program)
    check_determined(program.graph)
    own = {"model": model, "example_inputs": example_inputs, "loss": loss, "data": data}
    source = _source(plan, own, seed=seed, allow_import=allow_import)
    state, batches = training(program.graph, plan.model, source, seed=seed, allow_import=allow_import)
    compared = interpreted_differences(program, state, batches, steps=steps, learning_rate=learning_rate, seed=seed)
    module = _module_check(program, source, state, batches, learning_rate)
    return _verification(program.ranks, steps, tolerance, compared, module)


def interpreted_differences(
    program: Program,
    state: Values,
    batches: Callable[[int], Values],
    *,
    steps: int = 2,
    learning_rate: float = 1e-3,
    seed: int = 0,
) -> tuple[Difference, ...]:
    """Interpret some steps of a program, and compare each with one process.

    `batches(number)` gives the inputs of a microbatch, counted over all steps. ProgramError where the ranks deadlock.
    """
    count = program.schedule.num_microbatches
    microbatches = [[batches(step * count + m) for m in range(count)] for step in range(steps)]
    reference, compared = OneProcess(program.graph, state, learning_rate, program.frozen), list[Difference]()
    iterations = interpret_steps(
        program, state, microbatches.__getitem__, steps=steps, learning_rate=learning_rate, seed=seed
    )
    for step, ranks in enumerate(iterations):
        losses = {m: loss for rank in ranks for m, loss in rank.losses.items()}
        recorded = [
            {
                "gradients": rank.gradients,
                "values": [
                    (lasting.tensor, lasting.box, rank.lasting[number, lasting.value])
                    for number in rank.stages
                    for lasting in program.stages[number].lasting[rank.rank]
                    if not lasting.zero
                ],
            }
            for rank in ranks
        ]
        compared += reference.step(step, microbatches[step], sum(losses.values()) / count, recorded)
    return tuple(compared)
