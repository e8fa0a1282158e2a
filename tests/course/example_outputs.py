"""What the examples of the reference print: run, shortened, and kept in `example_outputs.toml` of the site.

python -m tests.course.example_outputs
"""

from __future__ import annotations

import io
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping
from contextlib import chdir, redirect_stderr, redirect_stdout
from pathlib import Path

from alpa_explore.cli import main
from alpa_explore.course.site.reference import OUTPUTS, examples
from tests.architecture.sources import ROOT

NOT_RUN = {"nodes", "lab", "app", "calibrate", "attach"}
"""They begin a server, measure the machine for minutes, or need attached hosts: their examples are only parsed."""
MEASURED = set("launch verify compare-run logs solve compare-solvers profile verify_interpreted verify_random".split())
MEASURED |= {"recalibrate"}
"""What these print differs from run to run: only the words of their first lines are compared."""
LINES, LETTERS = 10, 110
RUNS = """\
model,layers,hidden,heads,ffn,vocab,tied,seq,global_batch,micro_batch,gpus,gpu_type,framework,tp,pp,dp,\
zero_stage,recompute,step_s
llama-like-3.57B,28,3072,32,8192,131072,1,4096,256,2,8,H100-80GB,nanotron,2,1,4,1,none,7.98
"""
"""A run of the Ultra-Scale Playbook (nanotron, Apache-2.0)."""
_SESSION = """
import ast, contextlib, io, json, pathlib, sys

def main(examples):
    space, found = {}, {}
    for name, code in examples.items():
        *before, last = ast.parse(code).body
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            exec(compile(ast.Module(before, []), name, "exec"), space)
            if isinstance(last, ast.Expr):
                value = eval(compile(ast.Expression(last.value), name, "eval"), space)
                print(value) if value is not None else None
            else:
                exec(compile(ast.Module([last], []), name, "exec"), space)
        found[name] = printed.getvalue()
    pathlib.Path("found.json").write_text(json.dumps(found))

if __name__ == "__main__":
    main(json.loads(pathlib.Path("examples.json").read_text()))
"""
"""Runs examples in turn as a notebook does: the value of a last expression is shown."""


def shortened(text: str) -> str:
    """Its first lines, and of them the first letters; long numbers with six digits."""
    text = re.sub(r"\d+\.\d{7,}(?:e-?\d+)?", lambda found: f"{float(found[0]):.6g}", text)
    lines = text.replace("alpa-explore: ", "").strip("\n").splitlines()
    shown = [line.rstrip() if len(line.rstrip()) <= LETTERS else f"{line[: LETTERS - 1]}…" for line in lines[:LINES]]
    return "\n".join([*shown, "…"] if len(lines) > LINES else shown)


def same(name: str, kept: str, found: str) -> bool:
    """Whether an example prints what is kept."""
    if name not in MEASURED:
        kept, found = (re.sub("of commit [0-9a-f]+", "", text) for text in (kept, shortened(found)))
        return kept == found
    # Which gradient has the largest error differs from run to run.
    heads = [" ".join(text.splitlines()[:2]).split("the largest relative error")[0] for text in (kept, found)]
    words = [set(re.findall(r"[^\W\d_]{4,}(?!…)", head)) for head in heads]
    return bool(found.strip()) and words[0] <= words[1]


def command_outputs(names: Iterable[str]) -> dict[str, str]:
    """Name -> what the example of the command prints, without its progress; all run in the current folder."""
    Path("runs.csv").write_text(RUNS)
    shutil.copy(ROOT / "tests/problems/t2.json.gz", ".")
    found = {}
    for name in names:
        with redirect_stdout(io.StringIO()) as out, redirect_stderr(io.StringIO()) as err:
            code = main(shlex.split(examples()["commands"][name])[1:])
        assert code == 0, f"{name}: {err.getvalue()}"
        wrote = [line for line in err.getvalue().splitlines() if re.match("(alpa-explore: )?wrote ", line)]
        found[name] = "\n".join([*out.getvalue().rstrip().splitlines(), *wrote])
    return found


def function_outputs(folder: Path) -> dict[str, str]:
    """Name -> what the example of the function shows; all run in one session."""
    (folder / "session.py").write_text(_SESSION)
    run = {name: code.strip() for name, code in examples()["functions"].items() if name not in NOT_RUN}
    (folder / "examples.json").write_text(json.dumps(run))
    own = os.environ | {"ALPA_EXPLORE_COURSE": str(folder / "course")}
    ran = subprocess.run(
        [sys.executable, "session.py"], cwd=folder, env=own, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr
    found: dict[str, str] = json.loads((folder / "found.json").read_text())
    return found


def _table(title: str, found: Mapping[str, str]) -> str:
    assert not any("'''" in text for text in found.values())
    return "\n".join([f"[{title}]", *(f"{name} = '''\n{shortened(text)}'''" for name, text in found.items())])


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place, chdir(place):
        commands = command_outputs(name for name in examples()["commands"] if name not in NOT_RUN)
        tables = [_table("commands", commands), _table("functions", function_outputs(Path(place)))]
    head = "# What the examples print. `python -m tests.course.example_outputs` writes this file; a test compares it."
    OUTPUTS.write_text("\n\n".join([head, *tables]) + "\n", encoding="utf-8")
