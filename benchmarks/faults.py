"""What becomes of a run on two emulated hosts when something dies, again and again.

    python benchmarks/faults.py [--times 10] [--only "host" …] [--json FILE]

Each fault hits a run of 40 steps with a checkpoint every 5, whose steps take some 0.1 s, on two hosts without a shared
folder, with `retries=1`. The table says how often, how long until the run has ended or says that it goes on, how often
it went on, the agents and ranks found on any host when it was over (at least 15 s after the fault), the steps that were
done twice, and the reason given. It needs root (network namespaces).
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import torch

from alpa_explore.errors import AlpaExploreError
from alpa_explore.models.recipe import build_from_recipe
from alpa_explore.runtime.launch import launch
from alpa_explore.runtime.run import Run
from tests.hosts.hosts import Hosts, missing
from tests.runtime.plans import two_machines

STEPS, EVERY, WITHIN = 40, 5, 15.0
SLOW = "256kbit"
END_SECONDS = 300.0
"""A checkpoint of 0.5 MB takes 16 s at 256 kbit/s."""


@dataclass(frozen=True, kw_only=True)
class Seen:
    """What became of one run."""

    ended_seconds: float
    """From the fault until the run had ended, or said that it goes on."""
    reason: str
    orphans: int
    lost_steps: int | None
    """None where the run did not go on."""
    steps: int


class Slow:
    """Microbatches of the catalogue model, each of which takes a moment; all of some step are NaN if wanted."""

    def __init__(self, inputs: tuple[torch.Tensor, ...], nan_step: int | None) -> None:
        self.inputs, self.nan_step = inputs, nan_step

    def __call__(self, number: int) -> tuple[torch.Tensor, ...]:
        time.sleep(0.05)
        generator = torch.Generator().manual_seed(number)
        order = torch.randperm(len(self.inputs[0]), generator=generator)
        moved = tuple(t[order] for t in self.inputs)
        return (
            tuple(t * torch.nan if t.is_floating_point() else t for t in moved)
            if number // 2 == self.nan_step
            else moved
        )


Fault = Callable[[Hosts, Run, Path], None]


def kill_rank(hosts: Hosts, _run: Run, _small: Path) -> None:
    max(hosts.ranks(1), key=lambda p: p.create_time()).kill()


def kill_agent(hosts: Hosts, _run: Run, _small: Path) -> None:
    min(hosts.ranks(1), key=lambda p: p.create_time()).kill()


def kill_worker(hosts: Hosts, _run: Run, _small: Path) -> None:
    next(p for p in hosts.processes(1) if "distributed.cli.dask_worker" in p.cmdline()).kill()


def kill_host(hosts: Hosts, _run: Run, _small: Path) -> None:
    hosts.kill(1)


def kill_scheduler(hosts: Hosts, _run: Run, _small: Path) -> None:
    next(p for p in hosts.processes(0) if "distributed.cli.dask_scheduler" in p.cmdline()).kill()


def cut(hosts: Hosts, _run: Run, _small: Path) -> None:
    hosts.cut(1)


def slow(hosts: Hosts, _run: Run, _small: Path) -> None:
    for host in (0, 1):
        hosts.limit(host, SLOW)


def hang(hosts: Hosts, _run: Run, _small: Path) -> None:
    max(hosts.ranks(1), key=lambda p: p.create_time()).send_signal(signal.SIGSTOP)


def fill(_hosts: Hosts, run: Run, small: Path) -> None:
    def work() -> None:
        while not run.wait(0.1):
            with contextlib.suppress(OSError), (small / "full").open("ab", buffering=0) as stream:
                while stream.write(bytes(4096)):
                    pass

    threading.Thread(target=work, daemon=True).start()


def nothing(_hosts: Hosts, _run: Run, _small: Path) -> None:
    """The fault is in the data."""


FAULTS: dict[str, tuple[Fault, dict[str, Any]]] = {
    "rank killed": (kill_rank, {"retries": 1}),
    "rank hangs": (hang, {"retries": 1}),
    "agent killed": (kill_agent, {"retries": 1}),
    "worker killed": (kill_worker, {"retries": 1}),
    "host dies": (kill_host, {"retries": 1}),
    "link cut": (cut, {"retries": 1}),
    "link slow": (slow, {"retries": 1}),
    "scheduler killed": (kill_scheduler, {"retries": 1}),
    "launcher killed": (nothing, {"retries": 1}),
    "disk of hosts full": (fill, {"retries": 1, "full": "host"}),
    "disk of launcher full": (fill, {"retries": 1, "full": "launcher"}),
    "NaN in the data": (nothing, {"retries": 1, "nan_step": 12}),
}


@contextlib.contextmanager
def small_disk() -> Iterator[Path]:
    """A file system of 16 MB."""
    with tempfile.TemporaryDirectory(prefix="alpa-faults-") as folder:
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16m", "small", folder], check=True)
        try:
            yield Path(folder)
        finally:
            subprocess.run(["umount", "-l", folder], check=True)


def start(scheduler: str, folder: Path, *, nan_step: int | None, retries: int) -> Run:
    """The run that is hit."""
    plan = two_machines()
    recipe = build_from_recipe(plan.model.recipe, plan.model.samples, device="cpu")
    from alpa_explore.tracing.inputs.example import microbatch_tensors

    inputs = tuple(microbatch_tensors(recipe.example_inputs, recipe.loss))
    return launch(
        plan,
        "dask",
        scheduler=scheduler,
        folder=folder,
        steps=STEPS,
        device="cpu",
        checkpoint_every=EVERY,
        retries=retries,
        model=recipe.model,
        loss=None,
        data=Slow(inputs, nan_step),
    )


def until(run: Run, reached: Callable[[], Any], seconds: float = 120.0) -> bool:
    """Whether it came to that before the run ended."""
    end = time.monotonic() + seconds
    while not reached():
        if run.wait(0.02):
            return bool(reached())
        if time.monotonic() > end:
            raise TimeoutError(f"{run}")
    return True


def once(name: str) -> Seen:
    """Start a run, let the fault happen, and see what becomes of it."""
    fault, options = FAULTS[name]
    full = options.get("full")
    with contextlib.ExitStack() as stack:
        home = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="alpa-faults-")))
        small = stack.enter_context(small_disk()) if full else home
        hosts = stack.enter_context(Hosts(2))
        hide = [home, small] if full == "launcher" else [home]
        arguments = ["--local-directory", str(small)] if full == "host" else []
        scheduler = hosts.dask(hide=hide, arguments=arguments)
        folder = (small if full == "launcher" else home) / "run"
        if name == "launcher killed":
            return launcher_killed(hosts, scheduler, folder)
        run = start(scheduler, folder, nan_step=options.get("nan_step"), retries=options["retries"])
        if "nan_step" not in options:
            until(run, lambda: run.progress.checkpoints and len(run.progress.steps) >= EVERY + 2)
        else:
            until(run, lambda: len(run.progress.steps) >= options["nan_step"])
        began = time.monotonic()
        fault(hosts, run, small)
        went_on = until(run, lambda: run.progress.retries, END_SECONDS)
        took = time.monotonic() - began
        reason, orphans = "", 0
        try:
            result = run.result(END_SECONDS)
            reason = result.retries[0].reason if result.retries else "all steps were done without a retry"
        except AlpaExploreError as error:
            reason = str(error)
        else:
            assert [s.step for s in result.steps] == list(range(STEPS)), "every step is there, once"
        time.sleep(max(0.0, began + WITHIN - time.monotonic()))
        orphans = sum(len(hosts.ranks(host)) for host in (0, 1))
        return Seen(
            ended_seconds=took,
            reason=reason,
            orphans=orphans,
            lost_steps=run.progress.retries[0].lost_steps if went_on else None,
            steps=len(run.progress.steps),
        )


def launcher_killed(hosts: Hosts, scheduler: str, folder: Path) -> Seen:
    """The program that started the run is killed; how long its ranks live on, and from which step it can be resumed."""
    program = "import sys, pathlib, benchmarks.faults as f\n"
    program += "f.start(sys.argv[1], pathlib.Path(sys.argv[2]), nan_step=None, retries=1).wait()"
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(Path(__file__).resolve().parent.parent), *sys.path])}
    launcher = subprocess.Popen([sys.executable, "-c", program, scheduler, str(folder)], env=environment)
    end = time.monotonic() + 120
    while not (folder / "checkpoints" / f"step-{EVERY:06d}").is_dir():
        assert launcher.poll() is None, "the launcher runs"
        assert time.monotonic() < end, "there is a checkpoint"
        time.sleep(0.05)
    launcher.kill()
    launcher.wait()
    began = time.monotonic()
    while any(hosts.ranks(host) for host in (0, 1)) and time.monotonic() < began + 60:
        time.sleep(0.05)
    took = time.monotonic() - began
    resumed = launch(
        two_machines(),
        "dask",
        scheduler=scheduler,
        steps=STEPS,
        resume=folder,
        folder=folder.parent / "more",
        device="cpu",
    )
    steps = resumed.result(120).steps
    left = sum(len(hosts.ranks(host)) for host in (0, 1)) if took > WITHIN else 0
    return Seen(
        ended_seconds=took,
        reason=f"resumed by hand from step {steps[0].step}",
        orphans=left,
        lost_steps=None,
        steps=STEPS,
    )


def row(name: str, seen: list[Seen]) -> str:
    """A row of the table."""
    took = [s.ended_seconds for s in seen]
    lost = [s.lost_steps for s in seen if s.lost_steps is not None]
    told = f"{min(lost)}–{max(lost)}" if lost else "–"
    orphans = sum(s.orphans for s in seen)
    retried = f"{len(lost)} of {len(seen)}"
    reason = seen[-1].reason.replace("|", "/")[:110]
    cells = [name, len(seen), f"{statistics.mean(took):.1f}", f"{max(took):.1f}", retried, orphans, told, reason]
    return f"| {' | '.join(map(str, cells))} |"


def main() -> None:
    """Print the table, and a row of it after each fault."""
    parser = argparse.ArgumentParser(description="Faults of runs on emulated hosts.")
    parser.add_argument("--times", type=int, default=10)
    parser.add_argument("--only", nargs="*", choices=list(FAULTS), default=list(FAULTS))
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    if reason := missing():
        sys.exit(reason)
    print("| fault | times | seconds until the end or retry: mean | worst | went on | orphans | steps lost | reason |")
    print("|---|---|---|---|---|---|---|---|")
    found: dict[str, list[Seen]] = {}
    for name in options.only:
        for _ in range(options.times):
            try:
                found.setdefault(name, []).append(once(name))
            except Exception as error:
                print(f"{name}: {type(error).__name__} {error}", file=sys.stderr, flush=True)
        if name in found:
            print(row(name, found[name]), flush=True)
        if options.json:
            options.json.write_text(json.dumps({n: [asdict(s) for s in seen] for n, seen in found.items()}, indent=1))


if __name__ == "__main__":
    main()
