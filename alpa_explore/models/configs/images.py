"""Transformers of images: the vision transformer and the diffusion transformer."""

from __future__ import annotations

from dataclasses import dataclass

from alpa_explore.models.configs.paper import Transformer, check_divides

FREQUENCIES = 256
"""Sines and cosines that encode a diffusion step (github facebookresearch/DiT, models.py)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageTransformer(Transformer):
    """A transformer of the patches of an image; the MLP is 4 × hidden wide. OptionError where sizes do not divide."""

    patch: int
    """Height and width of a patch, in points."""
    image: int
    """Height and width of the input, in points."""
    classes: int

    def __post_init__(self) -> None:
        check_divides("hidden size", self.hidden, "heads", self.heads)
        check_divides("size of the image", self.image, "points of a patch", self.patch)

    @property
    def tokens(self) -> int:
        """Patches, and what else attention sees."""
        return (self.image // self.patch) ** 2


@dataclass(frozen=True, slots=True, kw_only=True)
class ViTConfig(ImageTransformer):
    """A vision transformer (arXiv 2010.11929) of RGB pixels, with a class token."""

    @property
    def tokens(self) -> int:
        """Patches and the class token."""
        return (self.image // self.patch) ** 2 + 1

    @property
    def parameter_count(self) -> int:
        """Patches, class token, positions; blocks · (attention + MLP + 2 layer norms); final norm, classifier."""
        h = self.hidden
        block = 4 * h * h + 4 * h + 8 * h * h + 5 * h + 4 * h
        ends = 3 * self.patch**2 * h + h + h + self.tokens * h + 2 * h + h * self.classes + self.classes
        return ends + self.layers * block

    @property
    def description(self) -> str:
        """One line for display."""
        return (
            f"ViT: {self.layers} layers, hidden {self.hidden:,}, {self.heads} heads, {self.image}×{self.image} images "
            f"in patches of {self.patch}×{self.patch} ({self.tokens} tokens), {self.classes} classes"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class DiTConfig(ImageTransformer):
    """A diffusion transformer (arXiv 2212.09748) of latent images: step and class modulate every block. A class more
    than `classes` stands for none.

    It predicts noise and variance, so it has twice the channels of its input.
    """

    channels: int

    @property
    def parameter_count(self) -> int:
        """Patches, step, class; blocks · (attention + MLP + 6 modulations); 2 modulations, output. Positions are fixed
        and do not count."""
        h, patch = self.hidden, self.patch**2 * self.channels
        ends = patch * h + h + FREQUENCIES * h + h + h * h + h + (self.classes + 1) * h
        block = 4 * h * h + 4 * h + 8 * h * h + 5 * h + 6 * h * h + 6 * h
        return ends + self.layers * block + 2 * h * h + 2 * h + 2 * patch * h + 2 * patch

    @property
    def description(self) -> str:
        """One line for display."""
        return (
            f"DiT: {self.layers} layers, hidden {self.hidden:,}, {self.heads} heads, {self.channels}×{self.image}×"
            f"{self.image} latents in patches of {self.patch}×{self.patch} ({self.tokens} tokens), {self.classes} "
            "classes"
        )
