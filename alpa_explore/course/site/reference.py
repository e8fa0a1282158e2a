"""The reference of the website: every command and public function, from parsers and docstrings, with an example each.

The examples are in `examples.toml`, what they print in `example_outputs.toml`; a test runs them.
"""

from __future__ import annotations

import argparse
import inspect
import tomllib
from collections.abc import Mapping
from functools import cache, partial
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any

import alpa_explore

EXAMPLES, OUTPUTS = (Path(__file__).parent / name for name in ("examples.toml", "example_outputs.toml"))
_WIDTH = 84
"""Letters of a line of help."""
_INTRODUCTION = """\
# Reference

Every command and every function, with an example that a test runs, and below it the beginning of what it prints (times
that were measured are those of one machine). The examples of commands follow each other in one folder, those of
functions in one session.

Results go to stdout, progress to stderr. Exit codes: 0 success, 1 no plan fits (with the nearest change that would), 2
bad input. A plan is a JSON file; opening one from a stranger runs no code. Solved problems are kept in the user's cache
folder, so that planning the same model again takes seconds."""


@cache
def examples(file: Path = EXAMPLES) -> Mapping[str, Mapping[str, str]]:
    """'commands' and 'functions' -> name -> example."""
    found: Mapping[str, Mapping[str, str]] = tomllib.loads(file.read_text(encoding="utf-8"))
    return found


def outputs() -> Mapping[str, Mapping[str, str]]:
    """'commands' and 'functions' -> name -> what its example prints, shortened."""
    return examples(OUTPUTS)


def reference_text(commands: Mapping[str, argparse.ArgumentParser]) -> str:
    """The page as Markdown."""
    parts = [_INTRODUCTION, "## Commands"]
    parts += [_command(name, parser) for name, parser in commands.items()]
    parts += ["## Functions", "All of them are names of `import alpa_explore as ax`."]
    parts += [_function(name, value) for name, value in public_functions().items()]
    parts += ["## The plan file", _plan_file()]
    return "\n\n".join(parts) + "\n"


def public_functions() -> dict[str, Any]:
    """Name -> function of `alpa_explore`, by the alphabet."""
    found = {name: getattr(alpa_explore, name) for name in sorted(alpa_explore.__all__)}
    return {name: value for name, value in found.items() if inspect.isfunction(value)}


def _example(kind: str, name: str, language: str) -> str:
    """The example, and what it prints."""
    text, printed = examples()[kind].get(name, ""), outputs()[kind].get(name, "")
    shown = f"```{language}\n{text.strip()}\n```\n\n" if text else ""
    return f"{shown}<pre>{escape(printed)}</pre>\n\n" if printed else shown


def _command(name: str, parser: argparse.ArgumentParser) -> str:
    formatter = argparse.RawDescriptionHelpFormatter if parser.epilog else argparse.HelpFormatter
    parser.formatter_class = partial(formatter, width=_WIDTH)
    text = f"### {name}\n\n{_example('commands', name, 'bash')}"
    return f"{text}<pre>{escape(parser.format_help().rstrip())}</pre>".replace("\n\n\n", "\n\n")


def _function(name: str, value: Any) -> str:
    signature = inspect.signature(value)
    arguments = ", ".join(str(parameter) for parameter in signature.parameters.values())
    form = f"```python\nax.{name}({arguments})\n```"
    return f"### ax.{name}\n\n{_example('functions', name, 'python')}{form}\n\n{escape(inspect.getdoc(value) or '')}"


def _plan_file() -> str:
    schema = (files("alpa_explore.plans.file") / "plan.schema.json").read_text(encoding="utf-8")
    return (
        "JSON, in SI units, each with its unit in the name. Unknown keys are ignored.\n\n"
        f"<details><summary>Its schema</summary><pre>{escape(schema.strip())}</pre></details>"
    )
