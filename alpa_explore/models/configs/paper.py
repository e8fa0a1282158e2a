"""The paper's families: GPT, the mixture of experts, Wide-ResNet; and the MLP of the tests.

With these conventions the parameter counts match the model names of the paper's tables (tests/models holds the
figures). They were read from Alpa's public sources (github alpa-projects/alpa: alpa/model/moe.py,
alpa/model/wide_resnet.py, benchmark/alpa/suite_*.py):

* GPT: the MLP is 4 × hidden wide; token embedding and LM head are one weight; learned positions. Later GPTs differ in
  some of that (fused attention, their own width of the MLP, an untied head, grouped keys and values, rotary positions).
* MoE: experts replace the MLP of layers 0, 2, 4, …; the MLP *and* every expert are 8 × hidden wide (4 × would give half
  of the count in each name); an expert is two matrices without bias; tokens are gated in groups of 2048, and an expert
  takes at most 2 · group / experts tokens of each.
* Wide-ResNet: stage i has f = base_channels · 2^i; a block is 1×1 to f, 3×3 to f · width_factor, 1×1 to 4 · f. So
  width_factor widens only the inner convolution.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from typing import Literal, Self

from alpa_explore.errors import OptionError


def check_divides(what: str, size: int, parts: str, count: int) -> None:
    """OptionError, naming both, unless `count` is positive and divides `size`."""
    if count < 1 or size % count:
        raise OptionError(
            f"The {what} must be a multiple of the number of {parts}",
            found=f"{what} {size}, {parts} {count}",
            remedy=f"Give a number of {parts} that divides {size}.",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Transformer:
    """What all transformers have: blocks of one width, with attention. By default they are equal."""

    hidden: int
    layers: int
    heads: int

    @property
    def periods(self) -> int:
        """Number of equal parts in sequence that the model consists of: its blocks."""
        return self.layers

    def with_periods(self, periods: int) -> Self:
        """The config of a model with that many blocks."""
        return replace(self, layers=periods)


@dataclass(frozen=True, slots=True, kw_only=True)
class LanguageModel(Transformer):
    """A transformer of tokens."""

    vocabulary: int
    sequence: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GPTConfig(LanguageModel):
    """A decoder with pre-layer-norm and an MLP of two matrices. The defaults are the paper's; the other values make the
    GPTs of Megatron-LM, NeMo (Nemotron) and llm-foundry (MPT), and need fused attention.

    OptionError where sizes do not divide, or spelled-out attention is given what only the fused one has.
    """

    kv_heads: int = 0
    """Heads of keys and values; 0 becomes `heads`."""
    mlp_ratio: int = 4
    attention: Literal["spelled-out", "fused"] = "spelled-out"
    """Two products and a softmax, or `scaled_dot_product_attention`."""
    ffn: int | None = None
    """Width of the MLP; None is mlp_ratio × hidden."""
    tied: bool = True
    """Whether the LM head is the token embedding's weight."""
    positions: Literal["learned", "rotary"] = "learned"
    activation: Literal["gelu", "squared-relu"] = "gelu"
    bias: bool = True
    """Whether linear layers have biases; layer norms always have one."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "kv_heads", self.kv_heads or self.heads)
        check_divides("hidden size", self.hidden, "heads", self.heads)
        check_divides("number of heads", self.heads, "heads of keys and values", self.kv_heads)
        paper = (None, True, self.heads, "learned", "gelu", True)
        if self.attention == "spelled-out" and paper != (
            *(self.ffn, self.tied, self.kv_heads, self.positions, self.activation, self.bias),
        ):
            raise OptionError(
                "A GPT with spelled-out attention is the paper's in everything else",
                found=repr(self),
                remedy="Give attention='fused'.",
            )

    @property
    def qkv_width(self) -> int:
        """Columns of the weight that makes queries, keys and values."""
        return (self.heads + 2 * self.kv_heads) * (self.hidden // self.heads)

    @property
    def mlp_width(self) -> int:
        """Width of the MLP."""
        return self.mlp_ratio * self.hidden if self.ffn is None else self.ffn

    @property
    def parameter_count(self) -> int:
        """Embeddings + layers · (attention + MLP + 2 layer norms) + final layer norm + LM head where it is not tied."""
        h, width, qkv = self.hidden, self.mlp_width, self.qkv_width
        layer = h * qkv + h * h + 2 * h * width + 4 * h + (qkv + h + width + h if self.bias else 0)
        positions = self.sequence * h if self.positions == "learned" else 0
        head = 0 if self.tied else self.vocabulary * h
        return self.vocabulary * h + positions + self.layers * layer + 2 * h + head

    @property
    def description(self) -> str:
        """One line for display."""
        grouped = f" ({self.kv_heads} of keys)" if self.kv_heads != self.heads else ""
        return (
            f"GPT: {self.layers} layers, hidden {self.hidden:,}, {self.heads} heads{grouped}, "
            f"sequence {self.sequence:,}, vocabulary {self.vocabulary:,}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class MoEConfig(LanguageModel):
    """A GPT in which experts with top-2 gating replace the MLP of every second layer (0, 2, 4, …), as in GShard."""

    experts: int
    expert_group: int
    """Tokens that compete for the same expert slots (S of GShard)."""
    mlp_ratio: int = 8
    auxiliary_weight: float = 0.01
    """Factor of the load-balancing loss, which is 1 a layer when the load is even; 0 leaves it out."""

    @property
    def periods(self) -> int:
        """Number of equal parts in sequence: pairs of a block with experts and one without."""
        return self.layers // 2

    def with_periods(self, periods: int) -> MoEConfig:
        """The config of a model with that many pairs, followed by the unpaired last block if there is one."""
        return replace(self, layers=2 * periods + self.layers % 2)

    @property
    def parameter_count(self) -> int:
        """Layers alternate: attention + experts (two matrices each) + gate; attention + MLP."""
        h, experts_layers = self.hidden, (self.layers + 1) // 2
        experts = 2 * h + h * self.experts + self.experts * 2 * self.mlp_ratio * h * h
        dense = (self.layers - experts_layers) * _mlp(h, self.mlp_ratio)
        return _embedding(self) + self.layers * _attention(h) + experts_layers * experts + dense

    @property
    def description(self) -> str:
        """One line for display."""
        return (
            f"GShard-MoE: {self.layers} layers, hidden {self.hidden:,}, {self.heads} heads, {self.experts} experts in "
            f"every second layer, sequence {self.sequence:,}, vocabulary {self.vocabulary:,}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class WideResNetConfig:
    """A bottleneck ResNet; `blocks` is the number of blocks in each stage."""

    layers: int
    """50 or 101 as the literature counts them: 3 convolutions a block, the first convolution and the classifier."""
    blocks: tuple[int, ...]
    base_channels: int
    width_factor: int
    image: int
    """Height and width of the RGB input, in pixels."""
    classes: int

    @property
    def parameter_count(self) -> int:
        """Convolutions have no bias; every one is followed by a batch norm (2 parameters a channel)."""
        channels = self.base_channels
        count = 3 * 7 * 7 * channels + 2 * channels
        for stage, blocks in enumerate(self.blocks):
            f = self.base_channels * 2**stage
            inner = f * self.width_factor
            for _ in range(blocks):
                count += channels * f + 9 * f * inner + 4 * f * inner + 2 * (f + inner + 4 * f)
                if channels != 4 * f:  # the first block of a stage projects its input
                    count += channels * 4 * f + 2 * 4 * f
                channels = 4 * f
        return count + channels * self.classes + self.classes

    @property
    def description(self) -> str:
        """One line for display."""
        return (
            f"Wide-ResNet-{self.layers}: {self.base_channels} base channels, width factor {self.width_factor}, "
            f"{self.image}×{self.image} images, {self.classes} classes"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class MLPConfig:
    """Linear layers with ReLU between them and a classifier at the end."""

    features: int
    hidden: int
    layers: int
    """Number of linear layers, the classifier included (at least 2)."""
    classes: int

    @property
    def parameter_count(self) -> int:
        """Weights and biases of all linear layers."""
        sizes = (self.features, *(self.hidden,) * (self.layers - 1), self.classes)
        return sum(a * b + b for a, b in itertools.pairwise(sizes))

    @property
    def description(self) -> str:
        """One line for display."""
        return f"MLP: {self.layers} linear layers, hidden {self.hidden}, {self.classes} classes"


def _embedding(config: MoEConfig) -> int:
    return (config.vocabulary + config.sequence + 2) * config.hidden  # the 2: the final layer norm


def _attention(h: int) -> int:
    return 4 * h * h + 4 * h + 2 * h  # one matrix for q, k, v, one for the output, their biases, a layer norm


def _mlp(h: int, ratio: int) -> int:
    return 2 * ratio * h * h + (ratio + 1) * h + 2 * h  # two matrices, their biases, a layer norm
