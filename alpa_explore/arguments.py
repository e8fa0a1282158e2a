"""What users hand over: names in any case or as torch's own values, and the kinds that a public function takes."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from numbers import Integral, Real
from typing import Any, ParamSpec, TypeVar

from alpa_explore.errors import OptionError

P = ParamSpec("P")
R = TypeVar("R")
_SHOWN = 80
_KINDS = {
    "StageDecision": "a decision of a stage",
    "TrainingGraph": "a graph that ax.capture returned",
    "Batches": "what ax.capture_batches returned",
    "Plan": "a plan that ax.plan or ax.load_plan returned",
    "PlanValue": "a plan that ax.plan or ax.load_plan returned",
    "Program": "a program that ax.lower returned",
    "Cluster": "a cluster (ax.Cluster.parse('2x8:a100'))",
    "PipelineOptions": "ax.PipelineOptions(…)",
    "Schedule": "a schedule, or the name of one",
    "str": "a text",
    "PathLike[str]": "a path",
    "Sequence[str | os.PathLike[str]]": "a list of paths",
    "Sequence[StageDecision]": "the decisions of its stages",
    "Module": "a torch.nn.Module",
    "bool": "True or False",
    "int": "a whole number",
    "float": "a number",
}
"""The kinds that are checked, as annotations name them, and their words."""


def plain_name(given: object) -> object:
    """A name as catalogues have it: without blanks around it, in small letters; of a dtype or class of torch its own
    ('bfloat16' for torch.bfloat16, 'adamw' for torch.optim.AdamW). Anything else as it is."""
    if isinstance(given, str):
        return given.strip().lower()
    module = getattr(given if isinstance(given, type) else type(given), "__module__", "")
    if isinstance(given, type) and module.startswith("torch."):
        return given.__name__.lower()
    if type(given).__name__ == "dtype" and module == "torch":
        return str(given).removeprefix("torch.")
    return given


def checked(*names: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Decorate a function: OptionError, with what it takes, where an argument of these names is of a kind that its
    annotation does not name."""

    def decorated(function: Callable[P, R]) -> Callable[P, R]:
        signature = inspect.signature(function)
        taken = {name: _kinds(str(signature.parameters[name].annotation)) for name in names}

        @wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            given = signature.bind(*args, **kwargs).arguments
            for name, kinds in taken.items():
                if name in given and not any(_is(given[name], kind) for kind in kinds):
                    raise _refused(function.__name__, name, given[name], kinds)
            return function(*args, **kwargs)

        return call

    return decorated


def _kinds(annotation: str) -> tuple[str, ...]:
    whole = annotation in _KINDS
    parts = [annotation] if whole else annotation.split("|")
    kinds = tuple(part.strip() if "[" in part else part.strip().rpartition(".")[2] for part in parts)
    kinds = tuple(kind.removeprefix("os.") for kind in kinds)
    assert all(kind in _KINDS or kind == "None" for kind in kinds), annotation
    return kinds


def _is(value: Any, kind: str) -> bool:
    if kind in ("int", "float"):
        return isinstance(value, Integral if kind == "int" else Real) and not isinstance(value, bool)
    if kind == "PathLike[str]":
        return hasattr(value, "__fspath__")
    if kind.startswith("Sequence["):
        of = _kinds(kind.removeprefix("Sequence[").removesuffix("]"))
        return isinstance(value, list | tuple) and all(any(_is(part, one) for one in of) for part in value)
    name = "NoneType" if kind == "None" else kind
    return any(known.__name__ == name for known in type(value).__mro__)


def _refused(function: str, name: str, value: object, kinds: tuple[str, ...]) -> OptionError:
    words = " or ".join(dict.fromkeys(_KINDS[kind] for kind in kinds if kind != "None"))
    text = repr(value) if isinstance(value, str | int | float | None) else ""
    shown = text[:_SHOWN] + "…" * (len(text) > _SHOWN)
    return OptionError(
        f"{function} takes something else as {name}",
        found=f"{type(value).__name__} {shown}".strip(),
        remedy=f"Give {words}{', or leave it out' if 'None' in kinds else ''}.",
    )
