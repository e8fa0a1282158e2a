"""A stage from its parts: what host, device and links take in each pass, what hides behind what, what a device holds.

Of a pass let D be the seconds of its kernels and of the collectives between them, H those in which the host launches
all of that, and S those of collectives of stored weights (ZeRO-2 and 3 gather weights, and scatter gradients, in every
microbatch). Where the software overlaps them, the pass takes

    p + exposed(S, p),  p = pace(H, D)          else    pace(H, D + S)

In a loop in plain PyTorch nothing waits between the passes of a microbatch: while the device still computes the forward
pass, the host launches the backward pass, of which D_F − H_F seconds are launched before it begins.

Once an iteration gradients are summed over replicas (R) and updated weights gathered (G). Where they overlap, R hides
behind a backward pass b, and G behind a forward pass f:

    exposed(R, b) + exposed(G, f) + update,     exposed(s, p) = hypot(max(s − p, 0), UNHIDDEN_SHARE · s)
                                                               + contention · min(s, p)

What is exchanged ahead of its use, block by block, waits for nothing but the links: so only its first and last block
and what is longer than the pass show, and `pace` is for host and device alone, which wait for each other.

A device holds, of each stage that it runs in turn, weights, gradients and optimizer state (stored), and what each of
so many microbatches keeps for its backward pass (kept); and of the stage that runs what needs most, the workspace:
temporary tensors, copies of weights that are stored in shards, what the software keeps beside, and its reserve.

A plan adds up the nodes of a graph (`intra_op.stage.stage_totals`), a layout the parts of a model
(`baselines.layout_price`): both ask `passes_seconds`, `once_seconds`, `gathered_bytes` and `device_bytes`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from alpa_explore.cluster import Software
from alpa_explore.cluster.device import UNHIDDEN_SHARE
from alpa_explore.numerics.arrays import Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class PassParts:
    """What one pass of a microbatch takes, in seconds."""

    device: float
    """Kernels, and collectives of activations as far as no product hides them."""
    host: float
    """To launch kernels and collectives."""
    stored: float
    """Collectives of stored weights and their gradients, with nothing hidden."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OnceParts:
    """What is paid once an iteration, in seconds, with nothing hidden."""

    summed: float
    """To sum gradients over replicas."""
    gathered: float
    """To gather updated weights."""
    update: float


def pace(host_seconds: float, device_seconds: float, sharpness: float) -> float:
    """Soft maximum (host^q + device^q)^(1/q): both stall for each other where they take about as long.

    `sharpness` q = 1 is the sum, infinity the maximum.
    """
    high, low = max(host_seconds, device_seconds), min(host_seconds, device_seconds)
    if low <= 0.0:
        return high
    return high * float((1.0 + (low / high) ** sharpness) ** (1.0 / sharpness))


def passes_seconds(forward: PassParts, backward: PassParts, software: Software) -> tuple[float, float]:
    """Seconds of the forward and of the backward pass of a microbatch."""
    ahead = max(forward.device - forward.host, 0.0) if software.plain_loop else 0.0
    launched = replace(backward, host=max(backward.host - ahead, 0.0))
    return pass_seconds(forward, software), pass_seconds(launched, software)


def pass_seconds(parts: PassParts, software: Software) -> float:
    """Seconds of a pass."""
    sharpness = software.pace_sharpness
    if software.gradient_sync != "overlapped":
        return pace(parts.host, parts.device + parts.stored, sharpness)
    computing = pace(parts.host, parts.device, sharpness)
    return computing + _exposed(parts.stored, computing, software)


def exposed_beside(computing: float, stored: Floats, software: Software) -> Floats:
    """exposed(s, p) of collectives of stored weights beside one operator: of operators with equal shares of
    communication the sum is that of the pass. `_exposed` for arrays, which is slow for single numbers."""
    late = np.hypot(np.maximum(stored - computing, 0.0), UNHIDDEN_SHARE * stored)
    return np.asarray(late + software.contention * np.minimum(stored, computing))


def once_seconds(parts: OnceParts, software: Software, *, forward: float, backward: float) -> float:
    """Seconds of what is paid once an iteration, beside passes of so many seconds."""
    if software.gradient_sync != "overlapped":
        return parts.summed + parts.gathered + parts.update
    exposed = (_exposed(parts.summed, backward, software), _exposed(parts.gathered, forward, software))
    return sum(exposed) + parts.update


def _exposed(communication: float, beside: float, software: Software) -> float:
    """Seconds of communication that computation beside it does not hide, and those that it costs computation."""
    late = math.hypot(max(communication - beside, 0.0), UNHIDDEN_SHARE * communication)
    return late + software.contention * min(communication, beside)


class StageBytes(NamedTuple):
    """What a device holds of a stage at its fullest."""

    stored: float
    """Weights, gradients and optimizer state."""
    kept: float
    """For the backward passes of all microbatches that it holds."""
    workspace: float


def device_bytes(turns: Sequence[StageBytes]) -> StageBytes:
    """What a device holds that runs these stages in turn: one workspace serves all."""
    stored, kept, workspaces = zip(*turns, strict=True)
    return StageBytes(sum(stored), sum(kept), max(workspaces))


def gathered_bytes(copies: float, blocks: float, software: Software) -> float:
    """Of `copies` of the weights of so many blocks, which are stored in shards, what a device holds at once."""
    return copies * min(software.gathered_blocks / max(blocks, 1), 1.0)
