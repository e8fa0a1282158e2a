"""One optimizer step on a piece of a weight. All of these work element by element, so pieces are as good as the whole.

A weight of 16 bits has a master copy of 32 bits, which the state keeps.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

Factory = Callable[[list[torch.nn.Parameter], float], torch.optim.Optimizer]

OPTIMIZERS: dict[str, Factory] = {
    "optimizer.adam": lambda p, rate: torch.optim.Adam(p, lr=rate),
    "optimizer.adamw": lambda p, rate: torch.optim.AdamW(p, lr=rate),
    "optimizer.sgd": lambda p, rate: torch.optim.SGD(p, lr=rate),
    "optimizer.sgd_momentum": lambda p, rate: torch.optim.SGD(p, lr=rate, momentum=0.9),
}


class PieceOptimizer:
    """The state of one piece of one weight."""

    def __init__(self, kind: str, weight: torch.Tensor, learning_rate: float) -> None:
        master = weight.detach().clone() if weight.dtype == torch.float64 else weight.detach().float().clone()
        self._weight = torch.nn.Parameter(master)
        self._dtype = weight.dtype
        self._optimizer = OPTIMIZERS[kind]([self._weight], learning_rate)

    @property
    def state_bytes(self) -> int:
        """What it keeps: the master copy and, from the first step on, moments."""
        kept = [v for v in self._optimizer.state[self._weight].values() if isinstance(v, torch.Tensor)]
        return sum(tensor.nbytes for tensor in (self._weight, *kept))

    def step(self, gradient: torch.Tensor) -> torch.Tensor:
        """The weight after one step."""
        self._weight.grad = gradient.to(self._weight.dtype)
        self._optimizer.step()
        return self._weight.detach().to(self._dtype).clone()
