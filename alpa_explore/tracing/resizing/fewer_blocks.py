"""A model with fewer of its repeated blocks, and the proof that the captures of such models determine the whole one.

Blocks may be equal in class and shapes and still be called differently: every third one with a window, say, or late
ones without gradients. So the ATen calls of the whole model are recorded, forward and backward, and must be those that
the passes with 3 and with 5 periods determine. What autograd records of a block (which results need a gradient, hooks,
the backward of an own function) shows in its backward pass. (With 2 and 4 a model whose head is one
product is not determined: in the backward pass its last block reads another tensor.)
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from torch import nn

WORTH_SHORTENING = 0.6
"""A model is captured with fewer blocks where both captures together trace at most this share of its modules. Set by
hand: the calls of all blocks are recorded beside them, in about a sixth of the time of a capture."""


FEW, MORE = 3, 5
"""Numbers of periods in the two captures."""
_PLAIN = (float, str, bool, type(None))
"""Attributes of these types must be equal; integers may count the blocks."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RepeatedBlocks:
    """A run of equal periods of modules in a ModuleList or Sequential."""

    container: nn.Module
    first: int
    """The place of the first module of the run."""
    period: int
    """How many modules are repeated."""
    periods: int

    @contextmanager
    def shortened(self, periods: int) -> Iterator[None]:
        """The model with so many periods of the run, until the end of the context."""
        whole = self.container._modules
        modules = list(whole.values())
        end = self.first + self.period * self.periods
        kept = [*modules[: self.first + self.period * periods], *modules[end:]]
        self.container._modules = {str(place): module for place, module in enumerate(kept)}
        try:
            yield
        finally:
            self.container._modules = whole


def repeated_blocks(model: nn.Module) -> RepeatedBlocks | None:
    """The run of equal modules (class, tensors, attributes) with which two captures are cheapest; None where a capture
    of the whole model is about as fast."""
    whole = sum(1 for _ in model.modules())
    costs = {
        run: _captured_modules(run, whole)
        for module in model.modules()
        if isinstance(module, nn.ModuleList | nn.Sequential) and len(module) > FEW + MORE
        for run in (_longest_run(module),)
        if run is not None
    }
    cheapest = min(costs, key=lambda run: costs[run], default=None)
    return None if cheapest is None or costs[cheapest] > WORTH_SHORTENING * whole else cheapest


def _captured_modules(run: RepeatedBlocks, whole: int) -> float:
    """How many modules the captures with FEW and MORE periods trace together, of a model with `whole` modules."""
    repeated = list(run.container.children())[run.first : run.first + run.period * run.periods]
    inside = sum(1 for module in repeated for _ in module.modules())
    return 2 * (whole - inside) + (FEW + MORE) * inside / run.periods


def _longest_run(container: nn.Module) -> RepeatedBlocks | None:
    kinds = [signature(module) for module in container._modules.values()]
    count, best = len(kinds), None
    for period in range(1, count // (FEW + MORE + 1) + 1):
        first = 0
        while first + period < count:
            end = first
            while end + period < count and kinds[end] == kinds[end + period]:
                end += 1
            periods = (end - first) // period + 1
            covered = 0 if best is None else best.periods * best.period
            if periods > FEW + MORE and periods * period > covered:
                best = RepeatedBlocks(container=container, first=first, period=period, periods=periods)
            first = end + 1
    return best


def signature(module: nn.Module | None) -> object:
    """What equal blocks have in common, as far as a module shows it."""
    if module is None:
        return None
    return tuple(
        (
            path,
            type(part),
            part.training,
            tuple((name, _tensor(t)) for group in (part._parameters, part._buffers) for name, t in group.items()),
            tuple((name, type(v), v) for name, v in vars(part).items() if isinstance(v, _PLAIN)),
        )
        for path, part in module.named_modules()
    )


def _tensor(tensor: object) -> object:
    return tensor if tensor is None else (tuple(tensor.shape), tensor.dtype, tensor.requires_grad)  # type: ignore[attr-defined]  # a tensor, or an uninitialised one
