"""What each software has of the ways to divide a model. What it lacks is not among its layouts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """The layouts that a software can run."""

    zero_stages: tuple[int, ...] = (0, 1, 2, 3)
    """Where the model has one stage."""
    zero_in_pipelines: tuple[int, ...] = (0, 1)
    """Where it has several: weights that are gathered for every microbatch rule out most schedules."""
    tensor: bool = True
    pipeline: bool = True
    interleaved: bool = True
    context: bool = True


_ALL = Offer()
_MEGATRON = Offer()  # ZeRO-2 and 3: Megatron-FSDP (--data-parallel-sharding-strategy), without pipelines
_TORCHTITAN = Offer(zero_stages=(2, 3), zero_in_pipelines=(2, 3))  # reshard_after_forward of FSDP2
_OFFERS: Mapping[str, Offer] = {
    "megatron": _MEGATRON,
    "megatron-2025": _MEGATRON,
    "megatron-hybridep": _MEGATRON,
    "mlperf": _MEGATRON,
    "megatron-v2": Offer(zero_stages=(0,), zero_in_pipelines=(0,), context=False),
    "megatron-deepspeed": Offer(zero_stages=(0, 1), interleaved=False, context=False),
    "nanotron": Offer(zero_stages=(0, 1), interleaved=False),
    "torchtitan": _TORCHTITAN,
    "torchtitan-eager": _TORCHTITAN,
    "deepspeed": Offer(interleaved=False, context=False, pipeline=False),
    "fsdp": Offer(zero_stages=(2, 3), tensor=False, pipeline=False, interleaved=False, context=False),
    "maxtext": Offer(zero_stages=(3,), zero_in_pipelines=(3,), interleaved=False),
    "eager": Offer(zero_stages=(0, 1), tensor=False, pipeline=False, interleaved=False, context=False),
    "compiled": Offer(zero_stages=(0, 1), tensor=False, pipeline=False, interleaved=False, context=False),
}
"""By the name of the profile, from the documentation of each framework."""


def offer_of(software: str) -> Offer:
    """What a software has; everything for the paper's setting, and for a profile of the user's."""
    return _OFFERS.get(software, _ALL)
