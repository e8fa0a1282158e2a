"""The optimizers that a plan can have: the state of each per parameter element, and the cost of one step.

A step is one operator per parameter (`optimizer.adam` …). Weights of 16 bits keep an fp32 master copy, as
mixed-precision training does, so their state is 4 bytes larger for each element.
"""

from dataclasses import dataclass

from alpa_explore.arguments import plain_name
from alpa_explore.errors import OptionError, nearest_names


@dataclass(frozen=True, slots=True, kw_only=True)
class Optimizer:
    """One optimizer: the number of moments per parameter, and the FLOPs of a step per element."""

    name: str
    moments: int
    flops_per_element: int

    @property
    def kind(self) -> str:
        """The operator kind of its step."""
        return f"optimizer.{self.name}"

    def state_bytes_per_element(self, weight_bytes: int) -> int:
        """Bytes of optimizer state per element of a parameter whose elements take `weight_bytes`; weight and gradient
        are not included."""
        if weight_bytes < 4:
            return 4 * self.moments + 4
        return weight_bytes * self.moments

    def step_bytes(self, elements: int, weight_bytes: int) -> int:
        """Bytes one step reads and writes: gradient and state read, state and weight written.

        The weight itself is read only where it has no master copy (the master is part of the state).
        """
        read_weight = 0 if weight_bytes < 4 else weight_bytes
        state = self.state_bytes_per_element(weight_bytes)
        return elements * (weight_bytes + read_weight + 2 * state + weight_bytes)


# FLOPs: adam  m = b1·m + (1-b1)·g (3); v = b2·v + (1-b2)·g·g (4); w -= r·m / (sqrt(v)/c + eps) (6)
#        adamw one more (w *= 1 - r·decay);  sgd  w -= r·g (2);  with momentum m = mu·m + g (2) before.
OPTIMIZERS = {
    o.name: o
    for o in (
        Optimizer(name="adam", moments=2, flops_per_element=13),
        Optimizer(name="adamw", moments=2, flops_per_element=14),
        Optimizer(name="sgd", moments=0, flops_per_element=2),
        Optimizer(name="sgd_momentum", moments=1, flops_per_element=4),
    )
}


def find_optimizer(name: str) -> Optimizer:
    """The optimizer of that name; OptionError offers the nearest names."""
    name = plain_name(name)  # type: ignore[assignment]  # of any kind, until it is one of ours
    if not isinstance(name, str) or name not in OPTIMIZERS:
        raise OptionError(
            "Unknown optimizer",
            found=repr(name) if isinstance(name, str) else type(name).__name__,
            remedy=nearest_names(str(name), OPTIMIZERS) + f" Known: {', '.join(OPTIMIZERS)}.",
        )
    return OPTIMIZERS[name]
