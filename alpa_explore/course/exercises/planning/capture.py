"""Exercises of lesson 01: capture."""

from __future__ import annotations

from itertools import pairwise
from random import Random
from textwrap import dedent
from typing import NamedTuple

from alpa_explore import units
from alpa_explore.course.definition import Exercise, Mistake
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
        title="A forward pass by hand",
        draw=_samples,
        question=lambda samples: (
            f"An MLP has four linear layers, {' → '.join(map(str, _WIDTHS))}. How many FLOPs do the products of its "
            f"forward pass have for {samples} samples?"
        ),
        kind=lambda _: Number(unit="FLOP", tolerance=0.0),
        truth=lambda samples: _products(samples, Phase.FORWARD),
        why=lambda samples, truth: (
            f"2 · {samples} · ({' + '.join(f'{a}·{b}' for a, b in pairwise(_WIDTHS))}) = {truth:,}: "
            "two FLOPs for each weight and sample. Biases are not counted."
        ),
        mistakes=lambda samples, truth: [
            Mistake(answer=truth // 2, reason="A multiplication and an addition are two FLOPs."),
            Mistake(
                answer=truth + samples * sum(_WIDTHS[1:]),
                reason="You added the biases. They are left out: beside the products they do not count.",
            ),
        ],
        hints=lambda samples: (
            "A product of m × k and k × n takes 2·m·k·n FLOPs.",
            f"m is the number of samples, {samples}; k and n are the widths before and after a layer.",
            "Add the four layers.",
        ),
        code=lambda samples: dedent(f"""\
            widths = {list(_WIDTHS)}
            answer = 2 * {samples} * sum(k * n for k, n in zip(widths, widths[1:]))
            """),
        premise="the captured products have these shapes",
        holds=lambda _: _captured(8, Phase.FORWARD) == _products(8, Phase.FORWARD),
    ),
    Exercise(
        id="01.2",
        title="And its backward pass",
        draw=_samples,
        question=lambda samples: (
            f"The same MLP, {' → '.join(map(str, _WIDTHS))}, with {samples} samples. How many FLOPs do the products of "
            "its backward pass have? The inputs need no gradient."
        ),
        kind=lambda _: Number(unit="FLOP", tolerance=0.0),
        truth=lambda samples: _products(samples, Phase.BACKWARD),
        why=lambda samples, truth: (
            f"Two products for each layer, but one for the first: 2 · {_products(samples, Phase.FORWARD):,} − "
            f"{2 * samples * _WIDTHS[0] * _WIDTHS[1]:,} = {truth:,}."
        ),
        mistakes=lambda samples, _: [
            Mistake(
                answer=2 * _products(samples, Phase.FORWARD),
                reason="Nearly: of the first layer only the gradient of the weight is needed, not that of its inputs.",
            ),
            Mistake(
                answer=_products(samples, Phase.FORWARD),
                reason="A layer has two gradients: of its weight, and of its input.",
            ),
        ],
        hints=lambda _: (
            "Which two products does the backward pass of Y = X·W have?",
            "Both have as many FLOPs as the forward product.",
            "Does the first layer need both?",
        ),
        code=lambda samples: dedent(f"""\
            widths = {list(_WIDTHS)}
            forward = [2 * {samples} * k * n for k, n in zip(widths, widths[1:])]
            answer = 2 * sum(forward) - forward[0]
            """),
        premise="the first layer has one product in the backward pass",
        holds=lambda samples: _products(samples, Phase.BACKWARD) < 2 * _products(samples, Phase.FORWARD),
    ),
    Exercise(
        id="01.3",
        title="When attention takes over",
        draw=lambda random: Attention(random.choice(_MODELS), random.choice((0.25, 0.5, 1, 2))),
        question=lambda a: (
            f"A block of {a.model} has {_block_parameters(a.model):,} parameters and width h = "
            f"{_config(a.model).hidden:,}. Causal attention has 2·s²·h FLOPs. For how many tokens s does the attention "
            f"of a block have {a.times:g} × the FLOPs of its products in the forward pass?"
        ),
        kind=lambda _: Number(tolerance=0.005),
        truth=lambda a: a.times * _block_parameters(a.model) / _config(a.model).hidden,
        why=lambda a, truth: (
            f"2·s²·h = {a.times:g} · 2·P·s at s = {a.times:g} · P / h = {units.number(truth, 6)} tokens. Attention "
            "grows with the square of s, products with s: beyond P / h most of the forward pass is attention."
        ),
        mistakes=lambda _, truth: [
            Mistake(answer=2 * truth, reason="Both sides have the factor 2: it cancels."),
            Mistake(
                answer=truth / 2, reason="The mask is in the formula already: 2·s²·h, where all pairs would be 4·s²·h."
            ),
        ],
        hints=lambda _: (
            "The products of a block have 2·P·s FLOPs, P being its parameters.",
            "Set 2·s²·h equal to so many times this.",
            "For equally many FLOPs s = P / h.",
        ),
        code=lambda a: dedent(f"""\
            parameters, width = {_block_parameters(a.model)}, {_config(a.model).hidden}
            answer = {a.times} * parameters / width
            """),
        premise="the sample of the catalogue is shorter: products still have more FLOPs",
        holds=lambda a: _config(a.model).sequence < _block_parameters(a.model) / _config(a.model).hidden,
    ),
)
"""In the order of their ids."""
