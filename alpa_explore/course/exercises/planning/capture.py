"""Exercises of lesson 01: capture."""

from __future__ import annotations

from itertools import pairwise
from textwrap import dedent

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


def _graph(samples: int) -> TrainingGraph:
    return graph_of("mlp-tiny", _BATCH // samples)


def _products(samples: int, phase: Phase) -> int:
    """FLOPs of the products of a phase, as they were captured."""
    return sum(o.flops for o in _graph(samples).operators if o.phase is phase and "mm" in o.kind)


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
        draw=lambda random: random.choice((4, 8, 16, 32)),
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
        holds=lambda samples: _graph(samples).samples == samples,
    ),
    Exercise(
        id="01.2",
        title="And its backward pass",
        draw=lambda random: random.choice((4, 8, 16, 32)),
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
        title="When attention takes half",
        draw=lambda random: random.choice(_MODELS),
        question=lambda model: (
            f"A block of {model} has {_block_parameters(model):,} parameters and width h = {_config(model).hidden:,}. "
            "Causal attention has 2·s²·h FLOPs. For how many tokens s do the products of a block and its attention "
            "have equally many FLOPs in the forward pass?"
        ),
        kind=lambda _: Number(tolerance=0.005),
        truth=lambda model: _block_parameters(model) / _config(model).hidden,
        why=lambda model, truth: (
            f"2·P·s = 2·s²·h at s = P / h = {units.number(truth, 6)} tokens. Beyond, most of the forward pass "
            "is attention."
        ),
        mistakes=lambda _model, truth: [
            Mistake(answer=2 * truth, reason="Both sides have the factor 2: it cancels."),
            Mistake(
                answer=truth / 2, reason="The mask is in the formula already: 2·s²·h, where all pairs would be 4·s²·h."
            ),
        ],
        hints=lambda _: (
            "The products of a block have 2·P·s FLOPs, P being its parameters.",
            "Set this equal to 2·s²·h.",
            "s = P / h.",
        ),
        code=lambda model: dedent(f"""\
            parameters, width = {_block_parameters(model)}, {_config(model).hidden}
            answer = parameters / width
            """),
        premise="the sample of the catalogue is shorter: products still have more FLOPs",
        holds=lambda model: _config(model).sequence < _block_parameters(model) / _config(model).hidden,
    ),
)
"""In the order of their ids."""
