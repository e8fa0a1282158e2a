"""Exercises of lesson 10: attention and context parallelism."""

from __future__ import annotations

from typing import NamedTuple

from alpa_explore.cluster import Cluster
from alpa_explore.figures.course.training.attention import ORDERS as ORDERS
from alpa_explore.figures.course.training.attention import causal_shares as causal_shares
from alpa_explore.figures.course.training.attention import ring_times
from alpa_explore.models.catalog import llama
from alpa_explore.models.configs import DecoderConfig

_LENGTHS = (8192, 16384, 32768, 65536, 131072)
_MODELS = ("llama-3.2-1b", "llama-3.2-3b", "llama-2-7b", "llama-2-13b", "llama-3-8b", "llama-3-70b")
_OFFERED = tuple(f"{length:,}" for length in _LENGTHS)


class Long(NamedTuple):
    """A model on a long sequence."""

    model: str
    sequence: int

    @property
    def config(self) -> DecoderConfig:
        """Its sizes."""
        return llama(self.model)

    @property
    def matrices(self) -> int:
        """Elements of the matrices of a block: multiply-adds of a token with them."""
        config = self.config
        keys = config.hidden // config.heads * config.kv_heads
        return 2 * config.hidden * (config.hidden + keys) + 3 * config.hidden * config.ffn

    @property
    def scores(self) -> float:
        """Multiply-adds of a token with the keys and values that it sees, in the mean: half of the sequence."""
        return self.config.hidden * self.sequence

    @property
    def share(self) -> float:
        """Of the multiply-adds of the block."""
        return self.scores / (self.scores + self.matrices)


class Ring(NamedTuple):
    """A ring of devices on as many nodes, and the model whose attention it computes."""

    device: str
    devices: int
    kv_heads: int

    @property
    def cluster(self) -> Cluster:
        """Eight nodes of eight."""
        return Cluster.parse(f"8x8:{self.device}")

    def hides(self, sequence: int) -> bool:
        """Whether computing hides the whole exchange."""
        times = ring_times(self.cluster, sequence, self.devices, stride=8, kv_heads=self.kv_heads)
        return times.exposed_seconds == 0
