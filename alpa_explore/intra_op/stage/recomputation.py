"""What the backward pass computes again in place of holding it: a value with the name that users type.

    none        nothing: every forward tensor that a backward operator reads is held
    norms       what is cheap: norms, activations, casts and other pointwise operators of a block
    attention   the core of attention: the fused operator, or the products and the softmax that spell it out
    mlp         the feed-forward part of a block, routed experts included
    half        every second block
    full        every block: only what enters it is held
    checkpoints what the model recomputes itself, by `torch.utils.checkpoint`: its default
    layers      layers of the plan, as in Alpa (arXiv 2201.12023): what a model of the paper does

Parts of a block may be joined: `norms+attention`. `attention` repeats the operators that Megatron-LM's selective
recomputation repeats (Korthikanti et al., arXiv 2205.05198, section 5); there the projection behind them still holds
their result, here it is computed again for the projection too. Names but `layers` do not depend on the number of
layers.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from alpa_explore.errors import OptionError
from alpa_explore.graph import TrainingGraph

NONE, HALF, FULL, LAYERS, CHECKPOINTS = "none", "half", "full", "layers", "checkpoints"
PARTS = ("norms", "attention", "mlp")
"""Parts of a block, which can be joined by +."""
NAMES = (NONE, *PARTS, "norms+attention", HALF, FULL, LAYERS, CHECKPOINTS)
"""What users are offered."""
_WORDS = {
    "norms": "norms and activations",
    "attention": "the core of attention",
    "mlp": "the feed-forward part",
    HALF: "every second block",
    FULL: "every block",
    CHECKPOINTS: "what the model itself checkpoints",
}


@dataclass(frozen=True, slots=True)
class Recomputation:
    """A kind of recomputation."""

    name: str = NONE
    layers: tuple[int, ...] = ()
    """The layers that are recomputed, ascending; only for LAYERS."""

    @classmethod
    def parse(cls, text: str, num_layers: int = 1) -> Recomputation:
        """A name, or parts of a block joined by + in any order; LAYERS are all `num_layers`. OptionError for another
        text."""
        text = text.strip().lower()
        parts = text.split("+")
        if text == LAYERS:
            return cls.of_layers(range(num_layers))
        if text in (NONE, HALF, FULL, CHECKPOINTS) or (set(parts) <= set(PARTS) and len(set(parts)) == len(parts)):
            return cls("+".join(sorted(parts, key=(NONE, *PARTS, HALF, FULL, CHECKPOINTS).index)))
        raise OptionError(
            "There is no such kind of recomputation",
            found=repr(text),
            remedy=f"Give one of {', '.join(NAMES)}, parts of a block joined by + as in norms+mlp, or 'auto', which "
            "chooses for each stage.",
        )

    @classmethod
    def of_layers(cls, layers: Iterable[int]) -> Recomputation:
        """These layers of the plan."""
        chosen = tuple(sorted(layers))
        return cls(LAYERS, chosen) if chosen else cls()

    @property
    def recomputes(self) -> bool:
        """Whether anything is computed again."""
        return self.name != NONE

    @property
    def parts(self) -> tuple[str, ...]:
        """The parts of a block that are computed again, for a kind that is made of them; else empty."""
        return tuple(part for part in self.name.split("+") if part in PARTS)

    @property
    def words(self) -> str:
        """What is computed again: 'norms and activations, and the core of attention'; '' for nothing."""
        if self.name == LAYERS:
            return f"layer{'' if len(self.layers) == 1 else 's'} {', '.join(map(str, self.layers))}"
        return ", and ".join(_WORDS[part] for part in self.name.split("+") if part in _WORDS)


def asked_for(rematerialization: bool | str | None, graph: TrainingGraph) -> bool | str | None:
    """What a plan recomputes: where nothing is asked for, what the model itself checkpoints, if it does."""
    return CHECKPOINTS if rematerialization is None and graph.checkpoints else rematerialization
