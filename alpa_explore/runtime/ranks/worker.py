"""Run one rank: read its job, join the other ranks, run the iterations, report and measure.

`python -m alpa_explore.runtime.ranks.worker FOLDER` runs the rank whose number torchrun or Slurm has set in the
environment; the agent calls `run_rank` in the processes that it forks.
"""

import json
import math
import os
import sys
import time
import traceback
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from pathlib import Path
from resource import RUSAGE_SELF, getrusage
from typing import Any
from urllib.parse import parse_qs, urlsplit

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import Store

from alpa_explore import units
from alpa_explore.errors import AlpaExploreError, RunError
from alpa_explore.numerics.memory import freed_memory_kept
from alpa_explore.programs.execution.execute import RankExecutor
from alpa_explore.programs.program import Compute, Instruction
from alpa_explore.runtime import tuning
from alpa_explore.runtime.checkpoints.keeper import CheckpointKeeper
from alpa_explore.runtime.checkpoints.layout import weights_of
from alpa_explore.runtime.checkpoints.stored import StoredState
from alpa_explore.runtime.folder import REQUESTED, WHOLE, read_hosts, said
from alpa_explore.runtime.job import RankJob, read_job
from alpa_explore.runtime.ranks.checkpoint import StateWriter, boxes_of, restore_optimizers
from alpa_explore.runtime.ranks.times import RunningTimes
from alpa_explore.runtime.ranks.transport import ProcessTransport
from alpa_explore.runtime.reports import EventReader, Heartbeat, Reporter
from alpa_explore.schedules.task import Task
from alpa_explore.store.records import plain


def meet(init_method: str, folder: Path, ranks: tuple[int, ...], rank: int) -> Store | None:
    """The store by which the ranks find each other, when all are there; None where torch makes it (env://).

    `init_method` is 'file:PATH', or 'tcp://HOST:PORT', with '?listen=FD' for the agent of the first rank if it has
    inherited a socket that listens there. RunError, with the ranks that are missing, after `tuning.MEET_SECONDS`.
    """
    if init_method.startswith("file:"):  # a path may contain characters that a URL may not
        path = init_method.removeprefix("file:")
        return dist.FileStore(path, len(ranks))  # type: ignore[attr-defined]  # public, but missing in its `__all__`
    if not init_method.startswith("tcp://"):
        return None
    place, first = urlsplit(init_method), rank == ranks[0]
    given = parse_qs(place.query).get("listen")
    host_of = read_hosts(folder)
    try:
        store = dist.TCPStore(  # type: ignore[attr-defined]  # public, but missing in its `__all__`
            place.hostname or "",
            place.port or 0,
            is_master=first,
            timeout=timedelta(seconds=tuning.MEET_SECONDS),
            wait_for_workers=False,
            master_listen_fd=int(given[0]) if first and given else None,
        )
        store.set(f"here/{rank}", "yes")
        _wait(store, ranks, rank, host_of)
    except dist.DistNetworkError as error:
        raise RunError(
            f"Rank {rank} did not meet the first rank",
            found=f"{_who(ranks[0], host_of)} at {place.hostname}, port {place.port}: {str(error).splitlines()[0]}",
            remedy="Look at the log of that rank, and open the port between the hosts.",
        ) from error
    store.set_timeout(tuning.TORCH_TIMEOUT)
    return store


def _wait(store: Store, ranks: tuple[int, ...], rank: int, host_of: dict[str, str]) -> None:
    try:
        store.wait([f"here/{other}" for other in ranks], timedelta(seconds=tuning.MEET_SECONDS))
    except dist.DistStoreError as error:
        missing = [other for other in ranks if not store.check([f"here/{other}"])]
        raise RunError(
            "The ranks did not all meet",
            found=f"after {tuning.MEET_SECONDS:.0f} s rank {rank} waits for "
            + ", ".join(_who(other, host_of) for other in missing),
            remedy="Look at the logs of these ranks, and at the network between the hosts.",
        ) from error


def _who(rank: int, host_of: dict[str, str]) -> str:
    host = host_of.get(str(rank))
    return f"rank {rank}" + (f" on {host}" if host else "")


def run_rank(
    folder: Path, rank: int, *, init_method: str, local_rank: int, parent: int | None = None, alone: bool = False
) -> int:
    """Run a rank to its end; the exit code. An error is reported as an event, and its traceback is printed.

    In a run that no other program watches (`alone`), the first rank keeps the checkpoints.
    """
    reporter, status = Reporter(folder, rank), _RankState()
    reporter.start_heartbeat(status.heartbeat, parent)
    try:
        status.worker = worker = _Worker(folder, rank, reporter, init_method=init_method, local_rank=local_rank)
        if alone and rank == worker.job.ranks[0]:
            worker.keeper = CheckpointKeeper(folder, worker.job.ranks, EventReader(folder, worker.job.ranks))
        with freed_memory_kept():  # tensors of every step are made and freed in the next
            worker.train()
        dist.destroy_process_group()
    except Exception as error:  # every error is reported to the program that started the run
        traceback.print_exc()
        fault = user_error(error, rank, status.heartbeat().doing)
        told = {"what": fault.what, "found": fault.found, "remedy": fault.remedy}
        reporter.report("error", **told, follows=_follows(error), may_pass=_may_pass(error))
        return 1
    return 0


class _RankState:
    """The state of the rank, for the thread of the heartbeat."""

    def __init__(self) -> None:
        self.worker: _Worker | None = None

    def heartbeat(self) -> Heartbeat:
        worker = self.worker
        if worker is None or worker.executor.now is None:
            return Heartbeat(instructions=0, doing="its start", waits_for="")
        task, instruction = worker.executor.now
        done = worker.executor.instructions_done + worker.writer.pieces_written
        if worker.saving:
            return Heartbeat(instructions=done, waits_for="", doing=worker.saving)
        doing = f"task {task}, {_named(instruction, worker.job)}"
        return Heartbeat(instructions=done, waits_for=worker.transport.waits_for, doing=doing)


def _last() -> deque[float]:
    return deque(maxlen=tuning.MEASURED_STEPS)


@dataclass(slots=True)
class _Measured:
    """The times of one task, one entry for each of the last steps."""

    seconds: deque[float] = field(default_factory=_last)
    collective_seconds: deque[float] = field(default_factory=_last)
    receive_seconds: deque[float] = field(default_factory=_last)
    processor_seconds: deque[float] = field(default_factory=_last)
    """Of the host's thread: on a CPU what the task computes, whatever else the machine does."""


class _Worker:
    def __init__(self, folder: Path, rank: int, reporter: Reporter, *, init_method: str, local_rank: int) -> None:
        """Read the job, join the other ranks, load the initial weights."""
        self.folder, self.rank, self.reporter = folder, rank, reporter
        self.job, state = read_job(folder, rank)
        options, world = self.job.options, len(self.job.ranks)
        self.device = torch.device("cuda", local_rank) if options.device == "cuda" else torch.device("cpu")
        if self.device.type == "cuda":
            torch.cuda.set_device(self.device)
            torch.backends.cudnn.allow_tf32 = False  # a plan in float32 computes in float32
        else:
            torch.set_num_threads(1)
        store = meet(init_method, folder, self.job.ranks, rank)
        dist.init_process_group(
            "nccl" if self.device.type == "cuda" else "gloo",
            init_method=None if store else init_method,
            store=store,
            timeout=tuning.TORCH_TIMEOUT,
            rank=self.job.ranks.index(rank),
            world_size=world,
        )
        self.transport = ProcessTransport(self.job, rank, self.device)
        self.executor = RankExecutor(
            self.job.program,
            rank,
            self.transport,
            boxes_of(state, self.job.program) if isinstance(state, StoredState) else state,
            learning_rate=options.learning_rate,
            seed=options.seed,
            device=self.device,
        )
        if isinstance(state, StoredState):
            restore_optimizers(state, self.executor)
        self.writer = StateWriter(folder, self.job.ranks.index(rank), self.executor, self.job.share)
        self.keeper: CheckpointKeeper | None = None
        """Where this rank keeps the checkpoints of the run."""
        self.saving = ""
        """What is being written; empty while the rank trains."""
        self.unkept = False
        """Whether a checkpoint that is written beside the training may not be whole yet."""
        self.beside = 0
        """The step of the last one that is."""
        self.measured: dict[Task, _Measured] = {}
        self.times = RunningTimes(folder, rank, self.transport.traffic, options.first_step)
        stages = ", ".join(map(str, self.executor.stages))
        print(f"rank {rank} of {world}, process {os.getpid()}: stage {stages} on {self.device}, {options.steps} steps")

    @torch.no_grad()
    def train(self) -> None:
        """Run all iterations."""
        steps, every = self.job.options.steps, self.job.options.checkpoint_every
        for step in range(self.job.options.first_step, steps):
            start = time.perf_counter()
            self.times.begin(step)
            self._iteration(step)
            seconds = time.perf_counter() - start
            self.times.end(step, self.measured, last=step + 1 == steps)
            losses = self.executor.losses
            loss = sum(losses.values()) / len(losses) if losses else None
            if loss is not None and not math.isfinite(loss):
                worst = next(m for m, value in losses.items() if not math.isfinite(value))
                raise RunError(
                    "The loss is not a number",
                    found=f"{losses[worst]} in step {step}, microbatch {worst}",
                    remedy="Try a smaller learning rate or another precision"
                    + ("; go on from a checkpoint (--resume)." if every else "; the weights are lost."),
                )
            self.reporter.report("step", step=step, loss=loss, seconds=seconds)
            print(f"step {step}: {units.seconds(seconds)}" + ("" if loss is None else f", loss {loss:.6g}"))
            if self.job.options.record:
                self._record(step)
            writing = self.writer.writing
            if self.keeper is not None and self.unkept:
                self.unkept = self.keeper.waits() or writing
            due, requested = self._due(step + 1)
            if due and not requested and step + 1 < steps and self._saved_beside(step + 1):
                continue
            if due or requested:
                write = partial(self.writer.state, step + 1, requested=not due)
                self._save(f"writing the checkpoint of step {step + 1}", write)
                if self.job.options.wait_for_whole:
                    self._wait_for_whole(step + 1, requested=not due)
        if self.job.options.save is not None:
            self._save("writing the trained weights", partial(self.writer.weights, steps, self.job.options.save))
        self._finish()

    def _due(self, done: int) -> tuple[bool, bool]:
        """Whether the run has a checkpoint after so many steps, and whether one is asked for."""
        every, last = self.job.options.checkpoint_every, done == self.job.options.steps
        asked = said(self.folder, REQUESTED)
        return bool(every) and (done % (every or 1) == 0 or last), asked is not None and (asked == done or last)

    def _save(self, doing: str, write: Callable[[], Mapping[str, Any]]) -> None:
        """Write a part of a checkpoint, and report it; the keeper makes it whole."""
        if self.device.type == "cuda":
            torch.cuda.synchronize()
        self.saving = doing
        report = write()
        self.saving = ""
        self.reporter.report("checkpoint", **report)
        print(f"{doing}: {units.seconds(report['seconds'])}")
        if self.keeper is not None:
            self.keeper.poll()

    def _saved_beside(self, step: int) -> bool:
        """Write a part of a checkpoint while the next steps are done; False where the host has no room for a copy of
        the state. In runs that are retried, the one before is whole then: a loss costs the steps of two at most."""
        if self.job.options.wait_for_whole and self.beside:
            self._wait_for_whole(self.beside, requested=False)
        if self.device.type == "cuda":
            torch.cuda.synchronize()

        def done(report: Mapping[str, Any]) -> None:
            self.reporter.report("checkpoint", **report)
            print(f"wrote the checkpoint of step {step} beside the training: {units.seconds(report['seconds'])}")

        self.saving = f"waiting until the checkpoint before that of step {step} is written, and copying the state"
        begun = self.writer.state_beside(step, done)
        self.saving = ""
        self.unkept |= begun
        self.beside = step if begun else 0
        return begun

    def _wait_for_whole(self, step: int, *, requested: bool) -> None:
        """Do nothing that would be lost with the checkpoint of `step`, until it is whole. RunError where it cannot be.

        On a slow link that takes long: go on before the agent takes it for a stall. A requested one never becomes whole
        where the request reached another rank too late; then a later step is asked for.
        """
        self.saving = f"waiting until the checkpoint of step {step} is whole"
        end = time.monotonic() + self.job.options.stall_seconds / 2
        while (said(self.folder, WHOLE) or 0) < step and time.monotonic() < end:
            self.writer.check()
            if requested and (said(self.folder, REQUESTED) or 0) > step:
                break
            time.sleep(tuning.WHOLE_POLL_SECONDS)
        self.saving = ""

    def _iteration(self, step: int) -> None:
        executor, transport = self.executor, self.transport
        count = self.job.program.schedule.num_microbatches
        loaded: dict[int, Any] = {}
        making_seconds = making_processor_seconds = 0.0

        def load(microbatch: int) -> Any:
            nonlocal making_seconds, making_processor_seconds
            if microbatch not in loaded:
                began = time.perf_counter(), time.thread_time()
                loaded.clear()
                loaded[microbatch] = self.job.batches(step * count + microbatch)
                making_seconds += time.perf_counter() - began[0]
                making_processor_seconds += time.thread_time() - began[1]
            return loaded[microbatch]

        executor.begin(step)
        transport.begin()
        for task in self.job.program.order(self.rank):
            before = time.perf_counter(), transport.collective_time.seconds(), transport.receive_time.seconds()
            processor, made = time.thread_time(), (making_seconds, making_processor_seconds)
            for _ in executor.run(task, load):
                raise AssertionError("this transport blocks")
            if self.device.type == "cuda":
                torch.cuda.synchronize()
            measured = self.measured.setdefault(task, _Measured())
            measured.seconds.append(time.perf_counter() - before[0] - (making_seconds - made[0]))
            measured.collective_seconds.append(transport.collective_time.seconds() - before[1])
            measured.receive_seconds.append(transport.receive_time.seconds() - before[2])
            measured.processor_seconds.append(time.thread_time() - processor - (making_processor_seconds - made[1]))
        transport.finish()

    def _record(self, step: int) -> None:
        record = {
            "gradients": [(p, box, g.cpu()) for p, box, g in self.executor.gradients],
            "values": [
                (lasting.tensor, lasting.box, self.executor.lasting[number, lasting.value].cpu())
                for number, lasting in weights_of(self.job.program, self.rank)
            ],
        }
        torch.save(record, self.folder / f"step-{step}-rank-{self.rank}.pt")

    def _finish(self) -> None:
        tasks = {str(task): plain(measured) for task, measured in self.measured.items()}
        peak = self.executor.memory.peak_bytes + sum(o.state_bytes for o in self.executor.optimizers.values())
        if self.device.type == "cuda":
            peak = torch.cuda.max_memory_allocated()
        (self.folder / f"rank-{self.rank}.measured.json").write_text(json.dumps({"peak_bytes": peak, "tasks": tasks}))
        self.reporter.report("done", peak_bytes=peak)
        if self.keeper is not None:
            self.keeper.finish(tuning.KEEP_SECONDS)


def _named(instruction: Instruction, job: RankJob) -> str:
    """A short description of an instruction, with the tensors of the graph that it computes."""
    tensors = job.program.graph.tensors
    written = [tensors[t] for t in instruction.writes if t < len(tensors)]
    shapes = ", ".join(f"{t.name} of {list(t.shape)} {t.dtype}" for t in written)
    name = type(instruction).__name__.lower()
    if isinstance(instruction, Compute):
        name = f"{instruction.operator.kind} {instruction.operator.name}"
    return f"{name} that makes {shapes}" if shapes else name


def user_error(error: Exception, rank: int, at: str) -> AlpaExploreError:
    """An error of a rank as an error for users."""
    if isinstance(error, AlpaExploreError):
        return error
    text = f"{type(error).__name__}: {error}".splitlines()[0][:300]
    at = "; ".join(getattr(error, "__notes__", (at,)))
    if isinstance(error, torch.OutOfMemoryError | MemoryError) or "can't allocate memory" in str(error):
        return RunError(
            f"Rank {rank} has no memory left",
            found=f"{at}: {text}",
            remedy="Plan for devices with this memory (`memory_bytes` of the cluster's device), or for more of them; "
            f"the rank holds {units.bytes_(getrusage(RUSAGE_SELF).ru_maxrss * 1024.0)} at most.",
        )
    if "EADDRINUSE" in str(error):
        return RunError(
            "The port where the ranks meet is in use",
            found=text,
            remedy="Launch again, or give a free one: MASTER_PORT in the environment of the script.",
        )
    return RunError(f"Rank {rank} failed", found=f"{at}: {text}", remedy="Its log has the whole trace.")


def _follows(error: Exception) -> bool:
    """Whether an error is only the consequence of another rank's end."""
    text = str(error).lower()
    return isinstance(error, RuntimeError) and any(
        sign in text for sign in ("connection closed", "connection reset", "broken pipe", "connection refused")
    )


def _may_pass(error: Exception) -> bool:
    """Whether an error is of processes, hosts or links, and not of the model, its data or the disk."""
    return _follows(error) or any(isinstance(e, dist.DistError) for e in (error, error.__cause__))


def main(arguments: list[str]) -> int:
    """Run a rank under torchrun or Slurm, which set RANK, LOCAL_RANK, MASTER_ADDR, … in the environment."""
    rank, local = int(os.environ["RANK"]), int(os.environ.get("LOCAL_RANK", "0"))
    return run_rank(Path(arguments[0]), rank, init_method="env://", local_rank=local, alone=True)


if __name__ == "__main__":
    code = main(sys.argv[1:])
    sys.stdout.flush()
    sys.stderr.flush()
    # Everything is reported and on disk. At the interpreter's own end a daemon thread that returns from torch to Python
    # is unwound through C++ frames that allow no exception, which calls std::terminate: a finished run would fail.
    os._exit(code)
