"""The process that runs one solution: reads its task and code from stdin, and writes what the check found to a file.

python -m alpa_explore.course.coding.child RESULT SECONDS
"""

from __future__ import annotations

import json
import resource
import sys
import traceback
from pathlib import Path

from alpa_explore.course.coding.checks import CHECKS
from alpa_explore.course.coding.lockstep import Wrong
from alpa_explore.course.coding.task import CodingTask, tasks

MEMORY_BYTES = 8 * 2**30
"""Of addresses; numpy alone takes some hundred MB."""
FILE = "<your solution>"


def main() -> None:
    """Check the solution, under the limits."""
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


if __name__ == "__main__":
    main()
