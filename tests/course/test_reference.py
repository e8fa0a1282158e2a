"""The reference of the website: it has every command and function, and its examples run."""

import ast
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from alpa_explore.cli import commands, main, parser
from alpa_explore.course.site.reference import examples, public_functions, reference_text
from tests.architecture.sources import ROOT

NOT_RUN = {"nodes", "lab", "app", "calibrate", "attach"}
"""They begin a server, measure the machine for minutes, or need attached hosts: their examples are only parsed."""
RUNS = """\
model,layers,hidden,heads,ffn,vocab,seq,global_batch,micro_batch,gpus,gpu_type,framework,tp,pp,dp,step_s
llama,24,2048,16,5632,50257,4096,128,1,8,h100,nanotron,2,1,4,6.1
"""


def test_every_command_and_function_is_there_with_an_example() -> None:
    shown, made = examples(), commands()
    assert list(shown["commands"]) == list(made)
    assert sorted(shown["functions"]) == list(public_functions())
    text = reference_text(made)
    assert all(f"\n### {name}\n" in text for name in made)
    assert all(f"\n### ax.{name}\n" in text for name in public_functions())
    assert " at 0x" not in text, "nothing in it depends on the run"
    assert reference_text(commands()) == text


def test_examples_that_are_not_run_are_understood() -> None:
    for name, example in examples()["commands"].items():
        program, *words = shlex.split(example)
        assert (program, words[0]) == ("alpa-explore", name)
        assert parser().parse_args(words).command == name
    for example in examples()["functions"].values():
        ast.parse(example)


@pytest.mark.slow
@pytest.mark.distributed
@pytest.mark.parametrize("of_a_plan", [True, False])
def test_the_examples_of_commands_run(
    of_a_plan: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In one process, which imports torch once."""
    monkeypatch.chdir(tmp_path)
    Path("runs.csv").write_text(RUNS)
    shutil.copy(ROOT / "tests/problems/t2.json.gz", tmp_path)
    every = examples()["commands"]
    made = [name for name, example in every.items() if "a.plan.json" in example or name in ("compare-run", "logs")]
    for name in made if of_a_plan else [name for name in every if name not in made]:
        if name not in NOT_RUN:
            example = every[name]
            assert main(shlex.split(example)[1:]) == 0, f"{example}\n{capsys.readouterr().err}"


@pytest.mark.slow
@pytest.mark.distributed
def test_the_examples_of_functions_run(tmp_path: Path) -> None:
    code = "\n".join(example for name, example in examples()["functions"].items() if name not in NOT_RUN)
    (tmp_path / "examples.py").write_text(
        f"def main():\n    exec({code!r}, {{}})\n\nif __name__ == '__main__':\n    main()\n"
    )
    environment = os.environ | {"ALPA_EXPLORE_COURSE": str(tmp_path / "course")}
    ran = [sys.executable, "examples.py"]
    run = subprocess.run(ran, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
