"""Exercises of lesson 01: capture."""

from __future__ import annotations

from itertools import pairwise
from random import Random
from typing import NamedTuple

from alpa_explore import units
from alpa_explore.course.definition import Exercise
from alpa_explore.course.kinds import Number
from alpa_explore.course.sharing import graph_of
from alpa_explore.graph import Phase, TrainingGraph
from alpa_explore.models.catalog import entry
from alpa_explore.models.configs import DecoderConfig, LlamaConfig

_WIDTHS = (64, 128, 128, 128, 16)
"""Of the catalogue's mlp-tiny: features, three hidden layers, classes."""
_BATCH = 64
"""Its global batch."""
_MODELS = ("llama-2-7b", "llama-2-13b", "llama-3-8b", "llama-3-70b", "llama-3.2-1b", "llama-3.2-3b")


class Attention(NamedTuple):
    """A model, and how many times the FLOPs of its products attention should have."""

    model: str
    times: float


def _graph(samples: int) -> TrainingGraph:
    return graph_of("mlp-tiny", _BATCH // samples)


def _products(samples: int, phase: Phase) -> int:
    """FLOPs of the products of a phase: as many times those that were captured for one sample."""
    return samples * _captured(1, phase)


def _captured(samples: int, phase: Phase) -> int:
    return sum(o.flops for o in _graph(samples).operators if o.phase is phase and "mm" in o.kind)


def _samples(random: Random) -> int:
    return random.randint(4, 64)


def _config(model: str) -> LlamaConfig | DecoderConfig:
    config = entry(model).config
    assert isinstance(config, LlamaConfig | DecoderConfig)
    return config


def _block_parameters(model: str) -> int:
    """Of one block."""
    config = _config(model)
    return config.with_periods(2).parameter_count - config.with_periods(1).parameter_count


EXERCISES = (
    Exercise(
        id="01.1",
        draw=_samples,
        kind=lambda _: Number(unit="FLOP", tolerance=0.0),
        truth=lambda samples: _products(samples, Phase.FORWARD),
        values={
            "shown": lambda *_: " → ".join(map(str, _WIDTHS)),
            "products": lambda *_: " + ".join(f"{a}·{b}" for a, b in pairwise(_WIDTHS)),
            "widths": lambda *_: _WIDTHS,
        },
        wrong=lambda samples, truth: (truth // 2, truth + samples * sum(_WIDTHS[1:])),
        holds=lambda _: _captured(8, Phase.FORWARD) == _products(8, Phase.FORWARD),
    ),
    Exercise(
        id="01.2",
        draw=_samples,
        kind=lambda _: Number(unit="FLOP", tolerance=0.0),
        truth=lambda samples: _products(samples, Phase.BACKWARD),
        values={
            "shown": lambda *_: " → ".join(map(str, _WIDTHS)),
            "forward": lambda n, _: _products(n, Phase.FORWARD),
            "first": lambda n, _: 2 * n * _WIDTHS[0] * _WIDTHS[1],
            "widths": lambda *_: _WIDTHS,
        },
        wrong=lambda samples, _: (2 * _products(samples, Phase.FORWARD), _products(samples, Phase.FORWARD)),
        holds=lambda samples: _products(samples, Phase.BACKWARD) < 2 * _products(samples, Phase.FORWARD),
    ),
    Exercise(
        id="01.3",
        draw=lambda random: Attention(random.choice(_MODELS), random.choice((0.25, 0.5, 1, 2))),
        kind=lambda _: Number(tolerance=0.005),
        truth=lambda a: a.times * _block_parameters(a.model) / _config(a.model).hidden,
        values={
            "parameters": lambda n, _: _block_parameters(n.model),
            "hidden": lambda n, _: _config(n.model).hidden,
            "rounded": lambda _, truth: units.number(truth, 6),
        },
        wrong=lambda _, truth: (2 * truth, truth / 2),
        holds=lambda a: _config(a.model).sequence < _block_parameters(a.model) / _config(a.model).hidden,
    ),
)
"""In the order of their ids."""
