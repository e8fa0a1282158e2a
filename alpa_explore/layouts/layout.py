"""A Megatron layout: a GPT, a batch, and their tensor, data and pipeline parallelism."""

from __future__ import annotations

from dataclasses import dataclass

from alpa_explore.errors import OptionError


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """A parallel layout of the training of one GPT. Ranks are numbered tensor first, then data, then pipeline.

    Raises OptionError where the numbers are not divisible.
    """

    devices: int
    global_batch: int
    micro_batch: int
    """Samples of one microbatch of one data-parallel replica."""
    hidden: int
    heads: int
    layers: int
    sequence: int
    tensor: int
    data: int
    pipeline: int
    vocabulary: int = 50257
    recompute: bool = True
    """Every layer stores only its input, and repeats its forward pass before its backward pass."""

    def __post_init__(self) -> None:
        for name in (
            "devices",
            "global_batch",
            "micro_batch",
            "hidden",
            "heads",
            "layers",
            "sequence",
            "tensor",
            "data",
            "pipeline",
            "vocabulary",
        ):
            if getattr(self, name) < 1:
                raise OptionError(
                    f"{name} of a layout must be 1 or more",
                    found=f"{name}={getattr(self, name)}",
                    remedy="Give 1 or more.",
                )
        divided = self.tensor * self.data * self.pipeline
        if divided != self.devices:
            raise OptionError(
                "Tensor × data × pipeline parallelism must be the number of devices",
                found=f"{self.tensor} × {self.data} × {self.pipeline} = {divided}, not {self.devices}",
                remedy=f"Give {divided} devices, or another division of {self.devices}.",
            )
        self._whole("layers", self.layers, "pipeline stages", self.pipeline)
        self._whole("heads", self.heads, "tensor-parallel devices", self.tensor)
        self._whole("hidden size", self.hidden, "heads", self.heads)
        self._whole(
            "global batch", self.global_batch, "samples of one round (data × micro batch)", self.data * self.micro_batch
        )

    @staticmethod
    def _whole(what: str, size: int, parts: str, count: int) -> None:
        if size % count:
            lower = size - size % count
            raise OptionError(
                f"The {what} must be a multiple of the {parts}",
                found=f"{what} {size}, {parts} {count}",
                remedy=f"Nearest that work: {' and '.join(str(n) for n in (lower, lower + count) if n)}.",
            )

    @property
    def microbatches(self) -> int:
        """The number of microbatches of each replica in an iteration."""
        return self.global_batch // (self.data * self.micro_batch)

    @property
    def tokens(self) -> int:
        """The number of tokens of one microbatch."""
        return self.micro_batch * self.sequence
