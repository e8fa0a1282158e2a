"""What the documents say a user can type or open is there: commands, options, make targets, files, README code."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from alpa_explore.cli import main
from tests.architecture.sources import ROOT

DOCUMENTS = ("README.md", "LIMITATIONS.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "tests/browser/README.md")
FENCE = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
PATH = re.compile(r"`((?:alpa_explore|widgets|notebooks|tests|benchmarks|binder|\.ci)/[\w./-]*)`")
LINK = re.compile(r"\]\((?!\w+:|#)([^)#]+)")
TARGET = re.compile(r"^([a-z][a-z-]*):", re.MULTILINE)


def blocks(document: str, *languages: str) -> list[str]:
    """The fenced blocks of a document in these languages."""
    return [code for language, code in FENCE.findall((ROOT / document).read_text()) if language in languages]


def commands(program: str) -> list[list[str]]:
    """Every line of a shell block that starts with `program`, as words; comments and continuations are resolved."""
    shell = "\n".join(block for document in DOCUMENTS for block in blocks(document, "bash", "sh", "console"))
    lines = shell.replace("\\\n", " ").splitlines()
    words = [shlex.split(line.removeprefix("$ "), comments=True) for line in lines]
    return [line for line in words if line and Path(line[0]).name == program]


def run_alpa_explore(*arguments: str) -> str:
    """What the installed command prints."""
    command = Path(sys.executable).with_name("alpa-explore")
    return subprocess.run([command, *arguments], check=True, capture_output=True, text=True).stdout


def test_the_readme_fits_on_a_screen_and_names_the_two_commands_of_a_new_machine() -> None:
    lines = (ROOT / "README.md").read_text().splitlines()
    assert len(lines) <= 32, "a list of commands belongs to the reference of the website"
    assert {"make explore", "make test"} <= {line.partition("#")[0].strip() for line in lines}


@pytest.mark.slow
def test_the_code_of_the_readme_runs(tmp_path: Path) -> None:
    """Each block knows nothing of the others; they share a process, which imports torch once."""
    every = f"for code in {blocks('README.md', 'python')!r}: exec(code, {{}})"
    result = subprocess.run([sys.executable, "-c", every], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr


@pytest.mark.slow
def test_the_installed_command_shows_its_help() -> None:
    assert "plan" in run_alpa_explore("--help")


def test_documented_commands_and_options_exist(capsys: pytest.CaptureFixture[str]) -> None:
    documented = commands("alpa-explore")
    assert documented, "the README shows how the command line is used"
    helps = {}
    for command in {words[1] for words in documented}:
        with pytest.raises(SystemExit) as ended:
            main([command, "--help"])
        assert ended.value.code == 0
        helps[command] = capsys.readouterr().out
    unknown = [
        f"{words[1]} {word}"
        for words in documented
        for word in (option.partition("=")[0] for option in words[2:])
        if word.startswith("-") and not re.search(rf"(?<![\w-]){re.escape(word)}(?![\w-])", helps[words[1]])
    ]
    assert unknown == []


def test_documented_make_targets_exist() -> None:
    targets = set(TARGET.findall((ROOT / "Makefile").read_text()))
    documented = {word for words in commands("make") for word in words[1:] if "=" not in word}
    prose = "\n".join((ROOT / document).read_text() for document in DOCUMENTS)
    documented |= set(re.findall(r"`make ([a-z-]+)", prose))
    assert {"explore", "test", "check"} <= documented
    assert documented - targets == set()


@pytest.mark.parametrize("document", DOCUMENTS)
def test_documented_files_exist(document: str) -> None:
    text = (ROOT / document).read_text()
    named = {*PATH.findall(text), *((Path(document).parent / link).as_posix() for link in LINK.findall(text))}
    assert sorted(name for name in named if not (ROOT / name).exists()) == []


def test_functions_that_the_makefile_calls_and_tests_that_the_list_of_strangers_names_exist() -> None:
    called = re.findall(r"from ([\w.]+) import (\w+)", (ROOT / "Makefile").read_text())
    assert called, "make install compiles kernels"
    for module, name in called:
        assert f"def {name}(" in (ROOT / f"{module.replace('.', '/')}.py").read_text()
    listed = re.findall(r'"([a-z_/]+\.py)(?:::(\w+))?[^"]*"', (ROOT / "benchmarks/strangers.py").read_text())
    assert len(listed) > 20
    for file, name in listed:
        assert f"def {name or 'test_'}" in (ROOT / "tests" / file).read_text(), f"{file} {name}"
