"""A Hugging Face config.json as the config of a model: its text, without transformers.

The text is what a plan file keeps, so it holds what decides on the model only. It may come from a stranger: it is read
as JSON; no code that it names is run, and nothing is downloaded.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from alpa_explore.errors import RecipeError
from alpa_explore.store.read import parse_json, read_bytes

MOST_BYTES = 2**20
"""Of a config file; those of Hugging Face's largest models have 30,000."""
DEFAULT_SEQUENCE = 4096
"""Tokens of a sample, where the config allows as many."""
_LENGTHS = ("max_position_embeddings", "n_positions", "max_sequence_length", "n_ctx")
_BLOCKS = "num_hidden_layers"
_UNIFORM = frozenset(
    ("gemma", "gpt_neox", "granite", "llama", "mistral", "mixtral", "olmo2", "phi3", "qwen2", "qwen3", "qwen3_moe")
)
"""Values of model_type whose blocks are all alike unless one of the next keys says otherwise."""
_UNLIKE = ("layer_types", "mlp_only_layers", "decoder_sparse_step", "use_sliding_window", "no_rope_layers")
_UNUSED = ("_name_or_path", "transformers_version", "quantization_config", "label2id", "_commit_hash")
"""Keys on which a model that is trained from nothing does not depend."""
_DTYPES = ("torch_dtype", "dtype")
HUB_CODE = "auto_map"
"""The key that names classes in a repository of the Hub, by which it would run them."""
MOST_OF = {"layer": 2_000, "block": 100_000, "depth": 2_000, "expert": 100_000, "label": 10**7}
"""Word in a key -> the most that its value may count. transformers makes a list of as many, before anything else can be
checked: a billion layers take all memory. The largest models have 126 layers and 512 experts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HuggingFaceConfig:
    """A config file and the length of its samples."""

    text: str
    """JSON, in one line."""
    sequence: int
    """Tokens of a sample; images and sounds have the size that the config says."""

    @property
    def values(self) -> Mapping[str, Any]:
        """The keys of the file."""
        values: dict[str, Any] = json.loads(self.text)
        return values

    @property
    def architecture(self) -> str:
        """Class of the model, or the type of model where the file names no class."""
        values = self.values
        return str((values.get("architectures") or [values["model_type"]])[0])

    @property
    def remarks(self) -> tuple[str, ...]:
        """What of the file is not followed."""
        if HUB_CODE not in self.values:
            return ()
        kind = self.values["model_type"]
        return (f"the config names code on the Hub, which is never run: the model is transformers' own {kind}",)

    @property
    def dtype(self) -> str | None:
        """The dtype that the file names."""
        values = self.values
        return next((str(values[key]) for key in _DTYPES if values.get(key)), None)

    @property
    def periods(self) -> int:
        """Number of equal blocks; 0 where it is not known that they are equal."""
        values = self.values
        unlike = [values[key] for key in _UNLIKE if values.get(key) not in (None, False, [], 1)]
        # A list of the type of every block, as transformers writes it for blocks that are all alike, too.
        unlike = [value for value in unlike if not isinstance(value, list) or len({repr(of) for of in value}) > 1]
        blocks = values.get(_BLOCKS)
        return blocks if values["model_type"] in _UNIFORM and not unlike and isinstance(blocks, int) else 0

    def with_periods(self, periods: int) -> HuggingFaceConfig:
        """The config of a model with that many blocks, the first of this one's."""
        values, blocks = self.values, self.values.get(_BLOCKS)
        kept = {k: v[:periods] if isinstance(v, list) and len(v) == blocks else v for k, v in values.items()}
        return replace(self, text=compact({**kept, _BLOCKS: periods}))

    @property
    def description(self) -> str:
        """One line for display."""
        values = self.values
        sizes = [
            ("num_hidden_layers", "layers"),
            ("n_layer", "layers"),
            ("hidden_size", "hidden"),
            ("n_embd", "hidden"),
        ]
        known = [f"{word} {values[key]:,}" for key, word in sizes if isinstance(values.get(key), int)]
        return f"Hugging Face: {', '.join((self.architecture, *known, f'sequence {self.sequence:,}'))}"


def read_config(path: str | os.PathLike[str]) -> str:
    """The text of a config file, checked, as `HuggingFaceConfig.text`. RecipeError where it is none or needs code."""
    file = Path(path).expanduser()
    try:
        content = read_bytes(file, MOST_BYTES)
    except ValueError as error:
        raise _no_config(f"{file}: {error}") from error
    except OSError as error:
        raise RecipeError(
            "The config file cannot be read",
            found=f"{file}: {error.strerror}",
            remedy="Give the path of a config.json.",
        ) from error
    return checked_config(content.decode(errors="replace"), str(file))


def checked_config(text: str, place: str) -> str:
    """The same for a text from `place`."""
    try:
        values = parse_json(text, infinity=True)  # as transformers writes the limit of a time step
    except ValueError as error:
        raise _no_config(f"{place}: {error}") from error
    if not isinstance(values, dict) or not isinstance(values.get("model_type"), str):
        raise _no_config(f"{place} has no model_type")
    code = any(key == HUB_CODE for key, _ in _every_key(values))
    for key, value in _every_key(values):
        if key == "use_pretrained_backbone" and value:
            raise RecipeError(
                "The config asks for weights from the internet",
                found=f"{place}: use_pretrained_backbone",
                remedy='Set it to false: `"use_pretrained_backbone": false`.',
            )
        _check_count(key, value, place)
    labels = values.pop("id2label", None)
    if isinstance(labels, dict):
        values["num_labels"] = len(labels)
    kept = without_hub_code({key: value for key, value in values.items() if key not in _UNUSED})
    return compact({**kept, HUB_CODE: True} if code else kept)


def without_hub_code(value: Any) -> Any:
    """A config without the names of classes on the Hub, at any depth."""
    if isinstance(value, dict):
        return {key: without_hub_code(part) for key, part in value.items() if key != HUB_CODE}
    return [without_hub_code(part) for part in value] if isinstance(value, list) else value


def check_equal(found: Mapping[str, Any]) -> None:
    """RecipeError where the values of names of one size differ."""
    if len({repr(value) for value in found.values()}) > 1:
        raise RecipeError(
            "Two names of one size have different values in the config",
            found=", ".join(f"{name} = {value!r:.40}" for name, value in found.items()),
            remedy="Leave one of them out.",
        )


def _check_count(key: str, value: Any, place: str) -> None:
    counted = key.lower().replace("per_layer", "")  # a size in each layer is no number of layers
    most = next((most for word, most in MOST_OF.items() if word in counted), None)
    for count in value if isinstance(value, list) else (value,):
        if most is not None and isinstance(count, int | float) and count > most:
            raise RecipeError(
                "The config asks for more parts than are built",
                found=f"{place}: {key:.80} {count:,}",
                remedy=f"Give {most:,} or fewer.",
            )


def default_sequence(text: str) -> int:
    """DEFAULT_SEQUENCE, or what the config allows at most."""
    values = json.loads(text)
    lengths: list[int] = [values[key] for key in _LENGTHS if isinstance(values.get(key), int) and values[key] > 0]
    return min([DEFAULT_SEQUENCE, *lengths])


def compact(values: Mapping[str, Any]) -> str:
    """JSON in one line; equal configs have equal texts."""
    return json.dumps(values, separators=(",", ":"), sort_keys=True)


def _every_key(value: Any) -> Iterator[tuple[str, Any]]:
    for key, part in value.items() if isinstance(value, dict) else ():
        yield key, part
        yield from _every_key(part)
    for part in value if isinstance(value, list) else ():
        yield from _every_key(part)


def _no_config(found: str) -> RecipeError:
    return RecipeError(
        "The file is not the config of a Hugging Face model", found=found, remedy="Give the config.json of a model."
    )
