"""What the targets of exports accept, as their sources say, and readers of the exported files."""

import ast
import json
import re
import shlex
from functools import cache
from pathlib import Path
from typing import Any


@cache
def documented(target: str) -> dict[str, Any]:
    """The names of a target: its data file in `names/`, made from the sources of the version that it says."""
    found: dict[str, Any] = json.loads((Path(__file__).parent / "names" / f"{target}.json").read_text())
    return found


def megatron_arguments(script: str) -> dict[str, list[str]]:
    """Option -> its words, in the arrays of a script but that of torchrun. AssertionError for one given twice, for an
    unknown one, and for a value that it does not take."""
    found: dict[str, list[str]] = {}
    for name, body in re.findall(r"^(\w+)=\(\n(.*?)^\)", script, re.MULTILINE | re.DOTALL):
        if name == "LAUNCH":
            continue
        for word in shlex.split(body):
            if word.startswith("--"):
                assert word not in found, f"{word} is given twice"
                found[word] = []
            else:
                found[list(found)[-1]].append(word)
    for option, words in found.items():
        _check(option, words)
    return found


def _check(option: str, words: list[str]) -> None:
    kind = documented("megatron")["options"].get(option)
    assert kind is not None, f"Megatron-LM has no {option}"
    several = isinstance(kind, dict)
    kind = kind["type"] if several else kind
    assert len(words) == (kind != "flag") or (several and words), (option, words)
    for word in words:
        if isinstance(kind, list):
            assert word in kind, (option, word)
        elif kind in ("int", "float"):
            {"int": int, "float": float}[kind](word)


def assignments(source: str) -> dict[str, Any]:
    """'config.train.micro_batch_size' -> its value, in `with_plan` of an exported config; calls as their source."""
    tree = ast.parse(source)
    (function,) = (n for n in tree.body if isinstance(n, ast.FunctionDef) and n.name == "with_plan")
    found: dict[str, Any] = {}
    for node in function.body:
        if isinstance(node, ast.Assign):
            calls = isinstance(node.value, ast.Call)
            for target in node.targets:
                found[ast.unparse(target)] = ast.unparse(node.value) if calls else ast.literal_eval(node.value)
    return found


def imported(source: str) -> dict[str, str]:
    """Name -> the module that it is imported from."""
    return {
        name.name: node.module
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.ImportFrom) and node.module
        for name in node.names
    }


def fits(value: Any, annotation: str) -> bool:
    """Whether a value is of the type that a dataclass says, as far as its annotation is simple."""
    if annotation.startswith("Literal[") or "Literal[" in annotation:
        literals = ast.literal_eval(f"[{annotation.partition('Literal[')[2].partition(']')[0]}]")
        return value in literals or (value is None and ("None" in annotation or "Optional" in annotation))
    if value is None:
        return "None" in annotation or "Optional" in annotation
    if isinstance(value, bool):
        return "bool" in annotation
    if isinstance(value, int):
        return "int" in annotation or "float" in annotation
    return ("str" if isinstance(value, str) else "ist") in annotation
