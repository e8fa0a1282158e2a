"""Software: how a framework runs a model on a device. The figures of a profile hold for every model and layout.

A profile is a JSON file in `software_profiles/`, with the source of its figures; a few of them were fitted to
measured runs (`alpa-explore validation`). "alpa" is the paper's idealised setting: nothing is fused, the host is never
the limit, nothing overlaps, and no memory is kept back.
"""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Real

from alpa_explore.errors import ClusterError

_SHARES = ("tensor_overlap", "gradient_overlap", "gather_overlap", "send_overlap")


@dataclass(frozen=True, slots=True, kw_only=True)
class Software:
    """A framework: what it fuses and overlaps, its host time, its precision policy, its memory reserve."""

    name: str = "alpa"
    label: str = "Alpa's idealised setting"
    """Shown to users: 'Megatron-Core', 'eager PyTorch'."""
    source: str = ""

    fuses_pointwise: bool = False
    """Whether pointwise operators and reductions run as fused kernels: tensors inside a group are never stored."""

    pace_sharpness: float = 5.0
    """Exponent of the soft maximum of host and device time: how little they wait for each other."""
    forward_launch_seconds: float = 0.0
    """Host time to launch one kernel of the forward pass: Python, dispatcher, autograd bookkeeping."""
    backward_launch_seconds: float = 0.0
    """The same in the backward pass, which the autograd engine runs without Python."""
    collective_launch_seconds: float = 0.0
    """Host time to launch one collective."""
    microbatch_seconds: float = 0.0
    """Time of a microbatch that is neither of its kernels nor of their launches: schedule, data, synchronisation."""
    iteration_seconds: float = 0.0
    """The same for an iteration: gradient norm, logging, optimizer's Python."""

    attention_factor: float = 1.0
    """Rate of its fused attention relative to that of the device's figures."""

    tensor_overlap: float = 0.0
    """Share of a collective between two operators that runs beside them."""
    gradient_overlap: float = 0.0
    """Share of the gradient sum that runs beside the last backward pass, as far as that is long enough."""
    gather_overlap: float = 0.0
    """Share of the gathering of weights (ZeRO-1 … 3) that runs beside computation, as far as that is long enough."""
    send_overlap: float = 0.0
    """Share of the sends between stages that runs beside computation."""
    sequence_parallel: bool = False
    """Whether norms and residuals between tensor-parallel operators are divided along the sequence (Megatron)."""

    gradient_bytes: int = 0
    """Bytes of an element of an accumulated gradient; 0: the dtype of the weight."""
    reserve_bytes: int = 0
    """Memory that no plan is offered: context of the driver, communication buffers, workspaces of libraries."""
    fragmentation: float = 0.0
    """Share of the memory that the allocator loses to fragmentation, on top of the reserve."""

    def __post_init__(self) -> None:
        for name in self.__dataclass_fields__:
            value = getattr(self, name)
            if not isinstance(value, str) and not (isinstance(value, bool | Real) and 0 <= float(value) < float("inf")):
                raise ClusterError(
                    f"{name} of a software profile must be a number of 0 or more",
                    found=f"{name}={value!r}",
                    remedy="Give seconds or bytes; an overlap is a share.",
                )
        for name in (*_SHARES, "fragmentation"):
            if getattr(self, name) > 1:
                raise ClusterError(
                    f"{name} of a software profile must be a share between 0 and 1",
                    found=f"{name}={getattr(self, name)}",
                    remedy="Give 0 for none, up to 1 for all.",
                )

    def reserved_bytes(self, memory_bytes: float) -> float:
        """Bytes of a device with so much memory that a plan cannot use."""
        return self.reserve_bytes + self.fragmentation * memory_bytes
