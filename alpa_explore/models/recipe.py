"""Rebuild a model from the recipe in a plan file: a catalogue name, a Hugging Face config, or a function's import path.

`package.module:function` runs code of that package, so it is followed only if the user has allowed it: a plan file may
come from a stranger. The function takes no arguments and returns (model, example inputs of one microbatch), optionally
followed by a loss (as `capture` takes it) and a function from the number of a microbatch to its inputs.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from alpa_explore.errors import RecipeError
from alpa_explore.models.catalog import build, is_reference

if TYPE_CHECKING:
    import torch

    from alpa_explore.models.factory import Inputs

IMPORT_PATH = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*")


@dataclass(frozen=True, slots=True, kw_only=True)
class RecipeModel:
    """The model of a recipe, its inputs and its loss."""

    model: torch.nn.Module
    example_inputs: Any
    """Of one microbatch."""
    loss: Any = None
    microbatch: Callable[[int], Any] | None = None
    """Number of a microbatch -> its inputs, in the form of `example_inputs`; None where the recipe has no data."""


def build_from_recipe(
    recipe: str | None, samples: int, *, device: str = "meta", seed: int = 0, allow_import: bool = False
) -> RecipeModel:
    """The model of `recipe` with example inputs of `samples` samples (an import path's function decides on both).

    RecipeError when there is no recipe, it may not be followed, or it makes no model.
    """
    checked = check_recipe(recipe, allow_import=allow_import)
    if is_reference(checked):
        model, inputs = build(checked, samples, device=device, seed=seed)
        return RecipeModel(
            model=model,
            example_inputs=inputs,
            microbatch=lambda number: build_inputs(checked, samples, seed + number + 1),
        )
    return _imported(checked, seed)


def check_recipe(recipe: str | None, *, allow_import: bool) -> str:
    """The recipe, if it may be followed; else RecipeError. Nothing is imported or built."""
    if recipe is None:
        raise RecipeError(
            "The model cannot be rebuilt",
            found="a plan without a recipe (its model was made in a notebook)",
            remedy="Give its captured graph (graph=; to run it model= and example_inputs=, too), or capture it with "
            "recipe='package.module:function'.",
        )
    if is_reference(recipe):
        return recipe
    if not IMPORT_PATH.fullmatch(recipe):
        raise RecipeError(
            "The model cannot be rebuilt",
            found=f"recipe {recipe!r:.80} is not a model of the catalogue",
            remedy="Give a name that `alpa-explore models` lists, or an import path such as package.module:function.",
        )
    if not allow_import:
        raise RecipeError(
            "The recipe of the plan runs code, which is not allowed by default",
            found=f"recipe {recipe!r:.80}",
            remedy="Read that function; if you trust it, give --allow-import (in Python allow_import=True).",
        )
    return recipe


def build_inputs(name: str, samples: int, seed: int) -> Inputs:
    """The inputs of one microbatch of a catalogue model, drawn from `seed`."""
    from alpa_explore.models.catalog import entry
    from alpa_explore.models.factory import make_inputs

    return make_inputs(entry(name).config, samples, "cpu", seed)


def _imported(recipe: str, seed: int) -> RecipeModel:
    import torch

    module, _, function = recipe.partition(":")
    try:
        with torch.random.fork_rng(devices=()):
            torch.manual_seed(seed)
            made = getattr(importlib.import_module(module), function)()
    except Exception as error:  # whatever the user's code may raise
        raise RecipeError(
            "The recipe of the plan failed",
            found=f"{recipe}: {type(error).__name__}: {error}",
            remedy="Call the function yourself to see the error; its package must be importable.",
        ) from error
    if not isinstance(made, tuple) or not 2 <= len(made) <= 4 or not isinstance(made[0], torch.nn.Module):
        raise RecipeError(
            "The recipe of the plan does not make a model",
            found=f"{recipe} returns {type(made).__name__}",
            remedy="Return (model, example inputs), optionally followed by a loss and a function number -> inputs.",
        )
    model, inputs, loss, microbatch = (*made, None, None)[:4]
    return RecipeModel(model=model, example_inputs=inputs, loss=loss, microbatch=microbatch)
