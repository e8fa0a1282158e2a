"""The catalogue: name -> entry, and name -> (module, example inputs) on the meta device or with real values.

A name may have a length of samples behind it, `llama-3-8b@131072`, and may be the path of a Hugging Face config,
`path/config.json`. `CatalogEntry.reference` is a text that names the same model elsewhere: in a plan file.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from numbers import Integral
from typing import TYPE_CHECKING, Any

from alpa_explore.errors import OptionError, UnknownNameError, nearest_names
from alpa_explore.models.configs import (
    DecoderConfig,
    DiTConfig,
    ExpertsConfig,
    GPTConfig,
    HuggingFaceConfig,
    LatentConfig,
    MLPConfig,
    ModelConfig,
    MoEConfig,
    ViTConfig,
    WideResNetConfig,
)
from alpa_explore.models.configs.huggingface import checked_config, default_sequence, read_config

if TYPE_CHECKING:
    import torch

    from alpa_explore.models.factory import Inputs

_CONFIGS: dict[str, type[ModelConfig]] = {
    "gpt": GPTConfig,
    "llama": DecoderConfig,
    "qwen3": DecoderConfig,
    "mixtral": DecoderConfig,
    "deepseek": DecoderConfig,
    "gpt-oss": DecoderConfig,
    "moe": MoEConfig,
    "vit": ViTConfig,
    "dit": DiTConfig,
    "wide-resnet": WideResNetConfig,
    "mlp": MLPConfig,
}
_REFERENCE = re.compile(r"(?P<name>[^@]+)(@(?P<sequence>[^@]*))?")
_CONFIG_REFERENCE = re.compile(r"hf@(?P<sequence>\d{1,9}):(?P<text>\{.*\})", re.DOTALL)
_MOST_TOKENS = 2**27
"""Longest sequence that is accepted; a sanity limit."""
CONFIG_FAMILY = "huggingface"
"""Family of the models from a config file."""
_CONFIG_BATCH, _CONFIG_MICROBATCHES = 128, 16
"""Defaults of models from a config file: round figures, as for the catalogue's models of today."""
_MOST_SAMPLES = 10**9
"""Largest global batch that is accepted; a sanity limit."""
_ENTRY_FIELDS = ("name", "gpus", "num_layers", "num_microbatches")
_PARTS: Mapping[str, Callable[[Any], Any]] = {
    "blocks": tuple,
    "latent": lambda row: LatentConfig(**row),
    "experts": lambda row: ExpertsConfig(**row),
}
"""Hyper-parameters that are more than a number: field -> how its value in catalog.json becomes that of the config."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogEntry:
    """A model of the catalogue with the options with which the paper ran it, or round figures where it did not."""

    name: str
    family: str
    """'gpt', 'llama', 'qwen3', 'moe', …"""
    config: ModelConfig
    """Hyper-parameters."""
    global_batch: int
    """Samples (sequences, images) of one iteration."""
    precision: str
    """'float16', 'bfloat16' or 'float32': the dtype in which weights are read."""
    rematerialization: bool
    """Whether only layer inputs are held for the backward pass (the paper's setting)."""
    num_layers: int | None
    """L of the layering that the paper's runs used, and of the tiny models; None where it follows from the blocks and
    the cluster."""
    num_microbatches: int
    """B of the paper's runs."""
    gpus: int | None
    """Number of devices in the paper's run; None for models that are not in the paper."""
    source: str
    note: str = ""
    reference: str = ""
    """What `entry` takes for the same model, where that is not the name."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "reference", self.reference or self.name)

    @property
    def parameter_count(self) -> int:
        """Trainable elements; the tied embedding is counted once. A model from a config file is built for it."""
        if isinstance(self.config, HuggingFaceConfig):
            from alpa_explore.models.factory import make_module

            return sum(p.numel() for p in make_module(self.config, "meta", 0).parameters() if p.requires_grad)
        return self.config.parameter_count

    @property
    def sequence(self) -> int | None:
        """Tokens of a sample; None for images and features."""
        return getattr(self.config, "sequence", None)

    @property
    def description(self) -> str:
        """One line for display."""
        return self.config.description


# Memo of a pure function.
@cache
def _catalog() -> dict[str, CatalogEntry]:
    entries: dict[str, CatalogEntry] = {}
    for family in json.loads((files(__package__) / "catalog.json").read_text(encoding="utf-8"))["families"]:
        for row in family["entries"]:
            hyper_parameters: dict[str, Any] = {k: v for k, v in row.items() if k not in _ENTRY_FIELDS}
            hyper_parameters |= {k: v for k, v in family["defaults"].items() if k not in hyper_parameters}
            if family["family"] != "moe":  # whose experts are a number
                hyper_parameters |= {
                    k: part(hyper_parameters[k]) for k, part in _PARTS.items() if k in hyper_parameters
                }
            note = family.get("note", "")
            entries[row["name"]] = CatalogEntry(
                name=row["name"],
                family=family["family"],
                config=_CONFIGS[family["family"]](**hyper_parameters),
                global_batch=family["global_batch"],
                precision=family["precision"],
                rematerialization=family.get("rematerialization", True),
                num_layers=row.get("num_layers"),
                num_microbatches=row["num_microbatches"],
                gpus=row.get("gpus"),
                source=family["source"],
                note=note if row["name"] in note else "",
            )
    return entries


def names() -> tuple[str, ...]:
    """The names that `entry` and `build` accept: the paper's models by family and size, then the tiny ones."""
    return tuple(_catalog())


def llama(name: str) -> DecoderConfig:
    """The sizes of a model of the catalogue that is built as a Llama."""
    config = entry(name).config
    assert isinstance(config, DecoderConfig), f"{name} is not built as a Llama"
    assert config.family == "Llama", f"{name} is not built as a Llama"
    return config


def entry(name: str, sequence: int | None = None) -> CatalogEntry:
    """The entry of model `name` (in any case), with samples of `sequence` tokens if that is given.

    UnknownNameError offers the nearest names; OptionError for a sequence that the model cannot have; RecipeError for a
    path that holds no config.
    """
    if (config := _CONFIG_REFERENCE.fullmatch(name)) is not None:
        length = int(config["sequence"]) if sequence is None else sequence
        return _of_config(checked_config(config["text"], "the recipe"), length)
    path, _, tokens = name.rpartition("@") if name.rpartition("@")[0].endswith(".json") else (name, "", "")
    if path.endswith(".json"):
        text = read_config(path)
        length = sequence if sequence is not None else _tokens(tokens) if tokens else default_sequence(text)
        return _of_config(text, length)
    match = _REFERENCE.fullmatch(name.lower())
    entries = _catalog()
    if match is None or match["name"] not in entries:
        raise UnknownNameError("Unknown model", found=repr(name), remedy=nearest_names(name, entries))
    found = entries[match["name"]]
    if sequence is None and match["sequence"] is not None:
        sequence = _tokens(match["sequence"])
    return found if sequence is None else _with_sequence(found, sequence)


def is_reference(text: str | None) -> bool:
    """Whether `entry` takes a text from a file of a stranger: a name, or a config in full; never a path."""
    if text is None:
        return False
    match = _REFERENCE.fullmatch(text.lower())
    return _CONFIG_REFERENCE.fullmatch(text) is not None or (match is not None and match["name"] in _catalog())


def _tokens(text: str) -> int:
    if not text.isdecimal() or len(text) > len(str(_MOST_TOKENS)):
        raise _bad_sequence(repr(text))
    return int(text)


def _checked_sequence(sequence: int) -> int:
    if isinstance(sequence, bool) or not isinstance(sequence, Integral) or not 1 <= sequence <= _MOST_TOKENS:
        raise _bad_sequence(repr(sequence))
    return int(sequence)


def _bad_sequence(found: str) -> OptionError:
    return OptionError(
        "The sequence must be a number of tokens", found=found, remedy=f"Give 1 to {_MOST_TOKENS:,}, for example 8192."
    )


def _with_sequence(found: CatalogEntry, sequence: int) -> CatalogEntry:
    sequence = _checked_sequence(sequence)
    if found.sequence is None:
        raise OptionError(
            f"{found.name} has no sequence of tokens", found=f"sequence {sequence}", remedy="Leave the sequence out."
        )
    if sequence == found.sequence:
        return found
    name = f"{found.name}@{sequence}"
    config: Any = found.config
    return replace(found, config=replace(config, sequence=sequence), name=name, reference=name)


def _of_config(text: str, sequence: int) -> CatalogEntry:
    """The entry of a model from a config file."""
    config = HuggingFaceConfig(text=text, sequence=_checked_sequence(sequence))
    return CatalogEntry(
        name=config.architecture,
        family=CONFIG_FAMILY,
        config=config,
        global_batch=_CONFIG_BATCH,
        precision=config.dtype if config.dtype in ("float16", "bfloat16", "float32") else "bfloat16",
        rematerialization=False,
        num_layers=None,
        num_microbatches=_CONFIG_MICROBATCHES,
        gpus=None,
        source="the config file",
        reference=f"hf@{config.sequence}:{text}",
    )


def microbatch_size(entry: CatalogEntry, num_microbatches: int, global_batch: int | None = None) -> int:
    """Samples of one microbatch, global batch / B. OptionError when B is not a positive divisor of the batch (the
    paper's, unless `global_batch` is given)."""
    return divided_batch(entry.global_batch if global_batch is None else global_batch, num_microbatches, entry.name)


def divided_batch(batch: int, num_microbatches: int, model: str) -> int:
    """batch / B; OptionError, naming `model` and the nearest B, when B is not a positive divisor of the batch."""
    what = f"The number of microbatches does not suit {model}"
    batch = _whole(batch)
    if num_microbatches <= 0:
        raise OptionError(what, found=f"B = {num_microbatches}", remedy=f"Give a B from 1 to {batch}.")
    if batch % num_microbatches == 0:
        return batch // num_microbatches
    divisors = divisors_of(batch)
    below = max(d for d in divisors if d < num_microbatches)  # 1 divides everything, so there is one
    above = min((d for d in divisors if d > num_microbatches), default=None)
    near = f"{below} or {above}" if above else f"{below}"
    raise OptionError(
        what,
        found=f"B = {num_microbatches} does not divide its global batch of {batch}",
        remedy=f"The nearest B that does: {near}.",
    )


def divisors_of(batch: int) -> tuple[int, ...]:
    """All B that divide a global batch, ascending."""
    batch = _whole(batch)
    small = [d for d in range(1, math.isqrt(batch) + 1) if batch % d == 0]
    return tuple(sorted({*small, *(batch // d for d in small)}))


def _whole(batch: int) -> int:
    """`batch` as a Python int; OptionError unless it is a valid global batch."""
    if isinstance(batch, bool) or not isinstance(batch, Integral):
        raise OptionError(
            "The global batch must be a whole number of samples", found=repr(batch), remedy="Give 1 or more."
        )
    if not 1 <= batch <= _MOST_SAMPLES:
        raise OptionError(
            "The global batch is out of range",
            found=f"{batch}",
            remedy=f"Give a global batch of 1 or more, at most {_MOST_SAMPLES:,}.",
        )
    return int(batch)


def build(name: str, microbatch: int, *, device: str = "meta", seed: int = 0) -> tuple[torch.nn.Module, Inputs]:
    """Model `name` in float32 and the example inputs of one microbatch of `microbatch` samples.

    The module returns its scalar loss when called with the inputs. On the meta device (the default) neither holds
    memory and `seed` is not used; elsewhere weights and inputs are drawn from `seed`, the global generator untouched.
    UnknownNameError for a name not in the catalogue; OptionError for a microbatch below 1.
    """
    model = entry(name)
    if microbatch < 1:
        raise OptionError(
            "A microbatch must hold at least one sample",
            found=f"{microbatch}",
            remedy="Give a microbatch of 1 or more.",
        )
    from alpa_explore.models.factory import make_inputs, make_module

    return make_module(model.config, device, seed), make_inputs(model.config, microbatch, device, seed)
