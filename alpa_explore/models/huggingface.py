"""Models of the transformers package from a config: the module, and inputs with which it returns its loss.

Nothing is downloaded, and no code but that of the installed package runs. Which inputs a model takes follows from the
task of its class: token numbers, images, spectrograms or waves, with labels of the matching shape.
"""

import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.module import (
    register_module_module_registration_hook,
    register_module_parameter_registration_hook,
)

from alpa_explore.errors import MissingPackageError, RecipeError, UnknownNameError, nearest_names
from alpa_explore.models.configs.huggingface import HUB_CODE, HuggingFaceConfig, check_equal
from alpa_explore.models.transformer import INITIAL_STD

Draw = tuple[Callable[..., Tensor], Callable[..., Tensor]]
"""(limit, *shape) -> integers; (*shape) -> reals."""
LABELS = 16
"""Tokens that a sound is said to hold."""
MOST_PARTS = 300_000
"""Modules and parameters of a model: 61 layers of 256 experts, each with modules of its own, have 200,000."""
WAVE = 16_000
"""Samples of a sound: a second."""


def make_huggingface(config: HuggingFaceConfig) -> nn.Module:
    """The model of a config, in float32, in training mode, on the device of the context.

    UnknownNameError for an architecture that the installed transformers does not have, with the nearest ones;
    RecipeError for a config that it refuses, and for a model without a loss.
    """
    _transformers()
    settings, name, _ = _described(config)
    kind = getattr(sys.modules["transformers"], name)
    try:
        with limited_parts():
            try:
                model = kind._from_config(settings, attn_implementation="sdpa", dtype=torch.float32)
            except ValueError:  # models whose attention is more than torch's function say so
                model = kind._from_config(settings, attn_implementation="eager", dtype=torch.float32)
    except RecipeError:
        raise
    except Exception as error:  # whatever the code of a model may raise
        raise _refused(config, error) from error
    with torch.no_grad():
        for parameter in model.parameters():
            if not parameter.is_meta and not torch.isfinite(parameter).all():
                nn.init.normal_(parameter, std=INITIAL_STD)  # some are left unset until weights are loaded
    made: nn.Module = model.train()
    return made


@contextmanager
def limited_parts() -> Iterator[None]:
    """RecipeError where a model that is built meanwhile, in this thread, has more than `MOST_PARTS` modules and
    parameters: whatever key of its config asks for them, its list would grow without end."""
    count, thread = 0, threading.get_ident()

    def counted(*_: Any) -> None:
        nonlocal count
        count += threading.get_ident() == thread
        if count > MOST_PARTS:
            raise RecipeError(
                "The config asks for more parts than are built",
                found=f"more than {MOST_PARTS:,} modules and parameters",
                remedy="Give fewer layers, blocks or experts.",
            )

    hooks = (register_module_module_registration_hook(counted), register_module_parameter_registration_hook(counted))
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def make_huggingface_inputs(config: HuggingFaceConfig, samples: int, draw: Draw) -> dict[str, Tensor]:
    """Inputs of `samples` samples, by the name of the argument."""
    settings, _, inputs = _described(config)
    return inputs(settings, samples, config.sequence, draw)


def _described(config: HuggingFaceConfig) -> tuple[Any, str, Callable[..., dict[str, Tensor]]]:
    """(the config as transformers has it, name of the model's class, its inputs)."""
    types = _transformers().CONFIG_MAPPING_NAMES
    values = dict(config.values)
    known = values.pop("model_type")
    code = values.pop(HUB_CODE, None)
    if known not in types and code:
        raise RecipeError(
            "The config asks for code from the internet, which is never run",
            found=f"auto_map, for model_type {known!r:.80}, which the installed transformers does not have itself",
            remedy="Give a config whose model_type transformers has, or capture the model with ax.capture.",
        )
    if known not in types:
        raise UnknownNameError(
            "The installed transformers does not have this architecture",
            found=f"model_type {known!r:.80}",
            remedy=nearest_names(str(known), types),
        )
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    for pair in CONFIG_MAPPING[known].attribute_map.items():
        check_equal({name: values[name] for name in pair if values.get(name) is not None})
    try:
        settings = CONFIG_MAPPING[known].from_dict({**values, "model_type": known})
    except Exception as error:  # validators raise classes of their own
        raise _refused(config, error) from error
    settings.use_cache = False
    name, inputs = _task(config, known)
    return settings, name, inputs


def _task(config: HuggingFaceConfig, known: str) -> tuple[str, Callable[..., dict[str, Tensor]]]:
    """The class that the config names, or the first of its type that has a loss, and its inputs."""
    from transformers.models.auto import modeling_auto

    tables = [
        (getattr(modeling_auto, f"MODEL_FOR_{task}_MAPPING_NAMES").get(known), inputs)
        for task, inputs in _INPUTS.items()
    ]
    listed = [((names,) if isinstance(names, str) else names, inputs) for names, inputs in tables if names]
    for names, inputs in listed:
        if config.architecture in names:
            return config.architecture, inputs
    if listed:
        return listed[0][0][0], listed[0][1]
    raise RecipeError(
        "It is not known with which inputs this architecture returns a loss",
        found=config.architecture,
        remedy="Make the model in a notebook and give it to ax.capture with example inputs and a loss. Known tasks: "
        f"{', '.join(task.lower().replace('_', ' ') for task in _INPUTS)}.",
    )


def _tokens(settings: Any, samples: int, length: int, draw: Draw) -> dict[str, Tensor]:
    vocabulary = settings.get_text_config().vocab_size
    return {name: draw[0](vocabulary, samples, length) for name in ("input_ids", "labels")}


def _classified_tokens(settings: Any, samples: int, length: int, draw: Draw) -> dict[str, Tensor]:
    return {**_tokens(settings, samples, length, draw), "labels": draw[0](settings.num_labels, samples)}


def _tagged_tokens(settings: Any, samples: int, length: int, draw: Draw) -> dict[str, Tensor]:
    return {**_tokens(settings, samples, length, draw), "labels": draw[0](settings.num_labels, samples, length)}


def _images(settings: Any, samples: int, length: int, draw: Draw) -> dict[str, Tensor]:
    size = getattr(settings, "image_size", None) or 224
    sides = tuple(size) if isinstance(size, list | tuple) else (size, size)
    images = draw[1](samples, getattr(settings, "num_channels", 3), *sides)
    return {"pixel_values": images, "labels": draw[0](settings.num_labels, samples)}


def _spectrograms(settings: Any, samples: int, length: int, draw: Draw) -> dict[str, Tensor]:
    frames = 2 * settings.max_source_positions
    labels = draw[0](settings.vocab_size, samples, min(length, getattr(settings, "max_target_positions", length)))
    return {"input_features": draw[1](samples, settings.num_mel_bins, frames), "labels": labels}


def _waves(settings: Any, samples: int, length: int, draw: Draw) -> dict[str, Tensor]:
    return {"input_values": draw[1](samples, WAVE), "labels": draw[0](settings.vocab_size, samples, LABELS)}


_INPUTS: Mapping[str, Callable[..., dict[str, Tensor]]] = {
    "CAUSAL_LM": _tokens,
    "SEQ_TO_SEQ_CAUSAL_LM": _tokens,
    "MASKED_LM": _tokens,
    "IMAGE_CLASSIFICATION": _images,
    "SPEECH_SEQ_2_SEQ": _spectrograms,
    "CTC": _waves,
    "SEQUENCE_CLASSIFICATION": _classified_tokens,
    "TOKEN_CLASSIFICATION": _tagged_tokens,
}
"""Task, as transformers' tables of classes name it -> inputs of the models of that task."""


def _transformers() -> ModuleType:
    """Its table of configs. MissingPackageError without the extra."""
    try:
        from transformers.models.auto import configuration_auto
    except ImportError as error:
        raise MissingPackageError(
            "A Hugging Face config needs the transformers package",
            found=str(error),
            remedy='pip install "alpa-explore[hf]"',
        ) from error
    table: ModuleType = configuration_auto
    return table


def _refused(config: HuggingFaceConfig, error: Exception) -> RecipeError:
    line = " ".join(str(error).split()) or type(error).__name__
    return RecipeError(
        "transformers refuses the config",
        found=f"{config.architecture}: {line:.200}",
        remedy="Mend that value in the config file, or give the config of a model that the installed version has.",
    )
