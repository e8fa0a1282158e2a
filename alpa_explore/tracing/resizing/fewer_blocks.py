"""A model with fewer of its repeated blocks, and the proof that the captures of such models determine the whole one.

Blocks may be equal in class and shapes and still be called differently: every third one with a window, say, or late
ones without gradients. So the ATen calls of the whole model are recorded, forward and backward, and must be those that
the passes with 3 and with 5 periods determine. What autograd records of a block (which results need a gradient, hooks,
the backward of an own function) shows in its backward pass. (With 2 and 4 a model whose head is one
product is not determined: in the backward pass its last block reads another tensor.)

The kinds of blocks of a model, and the model with one block of each (`BlockKinds`): blocks are the modules of its lists
(`ModuleList`, `Sequential`) that have two matrices or more; of nested ones the outermost: a block, not its experts. Two
are of one kind where class, weights and attributes are equal, and what the model's config says of each block in a list.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeGuard

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


_LEAST_MATRICES = 2


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class BlockKinds:
    """The blocks of a model."""

    model: nn.Module
    containers: tuple[tuple[str, nn.Module], ...]
    """The lists of blocks with their paths, in the order of the model."""
    kinds: tuple[int, ...]
    """The kind of every block, in the order in which they first occur."""

    @property
    def examples(self) -> tuple[int, ...]:
        """Of each kind a block; the first one of all, whose input needs no sum of gradients, only where no other is of
        its kind."""
        return tuple(
            next((number for number, of in enumerate(self.kinds) if of == kind and number), 0)
            for kind in range(max(self.kinds) + 1)
        )

    @property
    def chosen(self) -> tuple[int, ...]:
        """The blocks that stand for all, in their order: two equal ones of each list that has such, by which a list of
        blocks is known (`layering.blocks`)."""
        chosen, first = {0, *self.examples}, 0
        for _, container in self.containers:
            seen: dict[int, int] = {}
            numbers = range(first, first := first + len(container._modules))
            pairs = [(seen[kind], n) for n in numbers if seen.setdefault(kind := self.kinds[n], n) != n]
            if pairs and not any({*pair} <= chosen for pair in pairs):
                chosen |= {*min(pairs, key=lambda pair: len({*pair} - chosen))}
        return tuple(sorted(chosen))

    @property
    def paths(self) -> tuple[str, ...]:
        """The paths of the chosen blocks in the shortened model."""
        return tuple(
            f"{path}.{place}"
            for (path, _), kept in zip(self.containers, self._kept, strict=True)
            for place in range(len(kept))
        )

    @property
    def _kept(self) -> list[list[int]]:
        """The chosen blocks of each list, by their places in it."""
        kept, first = [], 0
        for _, container in self.containers:
            count = len(container._modules)
            kept.append([number - first for number in self.chosen if first <= number < first + count])
            first += count
        return kept

    @contextmanager
    def shortened(self) -> Iterator[None]:
        """The model with the chosen blocks alone, until the end of the context; the lists of its config, too."""
        whole = [container._modules for _, container in self.containers]
        lists = [(values, dict(values)) for values in _configs(self.model)]
        try:
            for (_, container), kept in zip(self.containers, self._kept, strict=True):
                modules = list(container._modules.values())
                container._modules = {str(place): modules[number] for place, number in enumerate(kept)}
                for values, of_whole in lists:
                    for name, value in of_whole.items():
                        if _of_blocks(value, len(modules)):
                            values[name] = type(value)(value[number] for number in kept)
            yield
        finally:
            for (_, container), modules_of_whole in zip(self.containers, whole, strict=True):
                container._modules = modules_of_whole
            for values, of_whole in lists:
                values.update(of_whole)


def block_kinds(model: nn.Module) -> BlockKinds | None:
    """The blocks of a model; None where it has none."""
    containers = tuple(_containers(model, ""))
    if not containers:
        return None
    seen: dict[object, int] = {}
    kinds = []
    for _, container in containers:
        count = len(container._modules)
        said = [
            (name, value) for values in _configs(model) for name, value in values.items() if _of_blocks(value, count)
        ]
        for place, block in enumerate(container._modules.values()):
            kind = signature(block), tuple((name, repr(value[place])) for name, value in said)
            kinds.append(seen.setdefault(kind, len(seen)))
    return BlockKinds(model=model, containers=containers, kinds=tuple(kinds))


def _containers(module: nn.Module, path: str) -> Iterator[tuple[str, nn.Module]]:
    """The outermost lists of blocks inside a module."""
    for name, part in module.named_children():
        inside = f"{path}.{name}".lstrip(".")
        if isinstance(part, nn.ModuleList | nn.Sequential) and any(map(_is_block, part.children())):
            yield inside, part
        else:
            yield from _containers(part, inside)


def _is_block(module: nn.Module) -> bool:
    if isinstance(module, nn.ModuleList | nn.Sequential):
        return False
    return sum(parameter.dim() > 1 for parameter in module.parameters()) >= _LEAST_MATRICES


def _configs(model: nn.Module) -> list[dict[str, object]]:
    """The values of the configs of a transformers model, which say of some blocks what they are."""
    configs = {id(c): vars(c) for part in model.modules() if hasattr(c := getattr(part, "config", None), "__dict__")}
    return list(configs.values())


def _of_blocks(value: object, blocks: int) -> TypeGuard[list[object] | tuple[object, ...]]:
    """Whether a value of a config says something of every block. A list of all their numbers says nothing."""
    return isinstance(value, list | tuple) and len(value) == blocks and [*value] != [*range(blocks)]
