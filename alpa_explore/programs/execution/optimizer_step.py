"""One optimizer step on a piece of a weight.

All supported optimizers work element by element, so a weight can be updated piece by piece. A weight of 16 bits has a
master copy of 32 bits, which is part of the optimizer state.
"""

from collections.abc import Callable, Mapping
from functools import cache

import torch

Factory = Callable[[list[torch.nn.Parameter], float], torch.optim.Optimizer]

OPTIMIZERS: dict[str, Factory] = {
    "optimizer.adam": lambda p, rate: torch.optim.Adam(p, lr=rate),
    "optimizer.adamw": lambda p, rate: torch.optim.AdamW(p, lr=rate),
    "optimizer.sgd": lambda p, rate: torch.optim.SGD(p, lr=rate),
    "optimizer.sgd_momentum": lambda p, rate: torch.optim.SGD(p, lr=rate, momentum=0.9),
}


@cache  # Memo of a pure function.
def state_kinds(kind: str, dtype: torch.dtype) -> Mapping[str, tuple[bool, torch.dtype]]:
    """The state of an optimizer, after a step on a weight of that dtype: name -> (has the weight's shape, dtype)."""
    optimizer = PieceOptimizer(kind, torch.zeros(1, dtype=dtype), 0.0)
    optimizer.step(torch.zeros(1, dtype=dtype))
    return {name: (value.dim() == 1, value.dtype) for name, value in optimizer.state.items()}


MASTER = "master"
"""Name of the master copy in the state; the other names are torch's."""


class PieceOptimizer:
    """The optimizer state of one piece of one weight."""

    def __init__(
        self, kind: str, weight: torch.Tensor, learning_rate: float, state: Mapping[str, torch.Tensor] | None = None
    ) -> None:
        """Start with no state, or go on with the `state` of another one."""
        # Also of complex numbers, which `float()` would cut to their real parts.
        master = weight.detach().clone() if weight.dtype.itemsize >= 4 else weight.detach().float()
        self._weight = torch.nn.Parameter(master)
        self._dtype = weight.dtype
        self._optimizer = OPTIMIZERS[kind]([self._weight], learning_rate)
        for name, value in (state or {}).items():
            if name == MASTER:
                self._weight.data.copy_(value)
            else:  # torch keeps the number of steps, which has no dims, on the CPU
                place = "cpu" if name == "step" else weight.device
                self._optimizer.state[self._weight][name] = value.to(place, copy=True)

    @property
    def state(self) -> dict[str, torch.Tensor]:
        """Moments and number of steps by torch's names, and the master copy where the weight has 16 bits.

        A value with the shape of the piece belongs to its entries; one without dims is the same for all pieces.
        """
        kept = {k: v for k, v in self._optimizer.state[self._weight].items() if isinstance(v, torch.Tensor)}
        return kept if self._weight.dtype == self._dtype else {**kept, MASTER: self._weight.detach()}

    @property
    def state_bytes(self) -> int:
        """Bytes of the master copy and, from the first step on, of the moments."""
        kept = [v for v in self._optimizer.state[self._weight].values() if isinstance(v, torch.Tensor)]
        return sum(tensor.nbytes for tensor in (self._weight, *kept))

    def step(self, gradient: torch.Tensor) -> torch.Tensor:
        """The weight after one step."""
        self._weight.grad = gradient.to(self._weight.dtype)
        self._optimizer.step()
        return self._weight.detach().to(self._dtype).clone()
