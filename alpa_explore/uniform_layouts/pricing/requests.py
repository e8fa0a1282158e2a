"""What is asked of the cost model for layouts and measured runs: values that processes can exchange.

All runs of a `ModelKey` share the captured graph: a model with two blocks, whose work gives that of any number.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from alpa_explore.cluster import Cluster

BLOCKS_CAPTURED = 2
"""Periods of blocks of the captured model; the first differs from the others (its input needs no sum of gradients)."""

Answer = TypeVar("Answer", covariant=True)
"""What a pricer says of a run: a `RunPrice`, or the work that a fit prices many times."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelKey:
    """What decides on the captured graph."""

    config: Any
    """A config of `models.configs`. Of a measured run: with `BLOCKS_CAPTURED` periods of blocks, the vocabulary padded
    as the framework does, and at least tp heads of keys (where there are fewer, frameworks replicate them)."""
    micro_batch: int
    """Samples of a microbatch of one data-parallel replica."""
    dtype: str
    """torch's name of the dtype of tensors."""
    period: int = 1
    """Unlike blocks that take turns."""
    routed: bool = False
    """Whether blocks have routed experts."""
    predicted_ahead: int = 0
    """Further tokens that are predicted, each by a block and the head again (DeepSeek-V3, arXiv 2412.19437, §2.2)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRequest:
    """One run: cluster and layout."""

    number: int
    """By which its answer is found."""
    cluster: Cluster
    """With the software, and the precision in which it computes linear layers."""
    tensor: int
    data: int
    pipeline: int
    chunks: int
    """Parts of the model on each stage; 1 without interleaving."""
    context: int
    expert: int
    expert_tensor: int
    blocks: tuple[tuple[int, ...], ...]
    """Of each kind, of each of the pipeline · chunks parts, in the order of the model."""
    head_part: int
    """The part that has the LM head and the loss."""
    microbatches: int
    """Of one replica in an iteration."""
    zero_stage: int
    recompute: tuple[str, ...]
    """'none', 'selective' or 'full'; where the source does not say, the two ends between which the run lies."""
    counts_reserve: bool
    """Whether the measured memory is the driver's figure, with what the software keeps back, and not what the framework
    allocated."""
    schedule: str
    """'1f1b' or 'interleaved-1f1b', or what the source says."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPrice:
    """The answer."""

    seconds: float
    """Of an iteration."""
    bytes: float
    """Of the fullest device, counted as the source counts it: with what the software keeps back, or without."""
    fits: bool
    reason: str = ""
    """Why it does not fit: stage, part, bytes; empty where it does."""
    recompute: str = "none"
    """That was priced: where the run may have had several, the first; `fits` is whether one of them fits."""
    ends: tuple[RunPrice, ...] = ()
    """The prices of all that it may have had, where they are several."""


class Pricer(Protocol[Answer]):
    """Prices runs; processes get a copy, so it is a small value with module-level code. Both methods may raise
    AlpaExploreError: then the row is refused with that reason."""

    def model(self, key: ModelKey) -> Any:
        """What all runs of a key share: made once, and passed to `price`."""
        ...

    def price(self, model: Any, run: RunRequest) -> Answer:
        """The answer of one run."""
        ...
