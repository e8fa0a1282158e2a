"""A solution in a process of its own, which ends with it: its check, its time limit, what it printed."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import traceback
from dataclasses import dataclass
from pathlib import Path

from alpa_explore.course.coding.checks import CHECKS
from alpa_explore.course.coding.lockstep import Wrong
from alpa_explore.course.coding.task import CodingTask, tasks

PROCESSOR_SECONDS = 10
"""For all calls of a check; right solutions take a few milliseconds."""
WAIT_SECONDS = 120
"""After which a process that sleeps is ended; the start alone takes seconds on a busy machine."""
MEMORY_BYTES = 8 * 2**30
"""Of addresses; numpy alone takes some hundred MB."""
FILE = "<your solution>"
PRINTED = 4_000
"""Letters of what it printed that are shown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """What became of a solution."""

    wrong: str
    """What is wrong; '' where it is right."""
    printed: str

    @property
    def right(self) -> bool:
        """Whether it passed."""
        return not self.wrong


def check_solution(
    task: CodingTask, code: str, *, seconds: int = PROCESSOR_SECONDS, wait: float = WAIT_SECONDS
) -> Checked:
    """Run the check of a task on a solution, with so many processor seconds."""
    with tempfile.TemporaryDirectory(prefix="alpa-task-") as folder:
        result = Path(folder) / "result.json"
        child = subprocess.Popen(
            [sys.executable, "-c", f"from {__name__} import run_here; run_here()", str(result), str(seconds)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            cwd=folder,
            env=os.environ | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
            start_new_session=True,
        )
        try:
            printed, _ = child.communicate(json.dumps({"task": task.name, "code": code}).encode(), timeout=wait)
        except subprocess.TimeoutExpired:
            os.killpg(child.pid, signal.SIGKILL)
            printed, _ = child.communicate()
            return Checked(wrong=f"It does not end: stopped after {wait:g} s.", printed=_shown(printed))
        if result.is_file():
            return Checked(wrong=json.loads(result.read_text(encoding="utf-8"))["wrong"], printed=_shown(printed))
    if child.returncode in (-signal.SIGXCPU, -signal.SIGKILL):
        return Checked(wrong=f"It does not end: stopped after {seconds} s of computing.", printed=_shown(printed))
    return Checked(wrong=f"Its process ended with {child.returncode} before the check did.", printed=_shown(printed))


def _shown(printed: bytes) -> str:
    text = printed.decode(errors="replace").strip()
    return text if len(text) <= PRINTED else f"{text[:PRINTED]} …"


def run_here() -> None:
    """In the process of a solution: reads its task and code from stdin, and writes what its check found to a file."""
    result, seconds = Path(sys.argv[1]), int(sys.argv[2])
    asked = json.loads(sys.stdin.read())
    task = tasks()[asked["task"]]
    used = resource.getrusage(resource.RUSAGE_SELF)
    begun = int(used.ru_utime + used.ru_stime) + 1  # imports are not the student's
    resource.setrlimit(resource.RLIMIT_CPU, (begun + seconds, begun + seconds + 1))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    found = solution_fault(asked["code"], task)
    result.write_text(json.dumps({"wrong": found}), encoding="utf-8")


def solution_fault(code: str, task: CodingTask) -> str:
    """What is wrong with a solution, which runs here; '' where it is right."""
    names: dict[str, object] = {}
    try:
        exec(compile(code, FILE, "exec"), names)  # the student's own code, in this process alone
        solution = names.get(task.function)
        if not callable(solution):
            return f"There is no function {task.function}."
        CHECKS[task.name](solution)
    except Wrong as wrong:
        return str(wrong)
    except Exception as error:
        frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == FILE]
        line = f", line {frames[-1].lineno}" if frames else ""
        return f"It raises {type(error).__name__}{line}: {error}"
    return ""
