"""Splits of a scan: the ways in which one mesh axis can divide the operators of its body, in every step alike.

What is carried must keep its placement from step to step, and no device may need another one in the middle of a step:
then a scan on shards is a scan whose body runs on shards (`local.local_call`). Starting from a dim of a tensor that is
carried or stacked, every operator of the body takes a split of its own rule, or none, that agrees with those before it;
sums may be pending only where they leave the scan. Samples, and channels of a step that is elementwise, are found so.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache

from alpa_explore.graph import Operator, Tensor
from alpa_explore.graph.loops import SCAN, LoopBody, body_of, load_body
from alpa_explore.sharding.rules import RULES
from alpa_explore.sharding.rules.factors import Rule
from alpa_explore.sharding.spec import REPLICATE
from alpa_explore.sharding.strategy import Split

MOST_TRIED = 5_000
"""Choices for single operators that are tried from one dim: a step of an LSTM takes about forty."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Division:
    """One way to divide a body."""

    factor: str
    size: int
    placements: Mapping[int, int]
    """Of the tensors of the body."""
    operators: tuple[Split | None, ...]
    """The split of each operator; None for one that every device runs whole."""


# Memo of a pure function.
@lru_cache(maxsize=256)
def divisions(text: str) -> tuple[Division, ...]:
    """All that can stand side by side on different mesh axes."""
    body = load_body(text)
    carried, stacked, _ = body.inputs
    kept: list[Division] = []
    for tensor in body.tensors[: carried + stacked]:
        for dim, size in enumerate(tensor.shape):
            if size > 1:
                found = _Search(body, size).begin(tensor.index, dim)
                if found is not None:
                    _keep(kept, body, found, f"dim{dim}")
    return tuple(kept)


def _keep(kept: list[Division], body: LoopBody, found: _Search, name: str) -> None:
    """Add what was found, unless it is known, or an operator can not be divided by it and by another one at once."""
    splits = tuple(found.chosen)
    if not any(s is not None and s.divides for s in splits):
        return
    if any(d.operators == splits and d.placements == found.placements for d in kept):
        return
    if any(_clash(a, b) for d in kept for a, b in zip(d.operators, splits, strict=True)):
        return
    sizes = [s.size for s in splits if s is not None and s.divides]
    sizes += [body.tensors[t].shape[p] for t, p in found.placements.items() if p >= 0]
    size = math.gcd(*sizes)
    if size > 1:
        names = {d.factor for d in kept}
        factor = next(f for f in (name, *(f"{name}.{i}" for i in range(len(names) + 1))) if f not in names)
        kept.append(Division(factor=factor, size=size, placements=dict(found.placements), operators=splits))


def _clash(a: Split | None, b: Split | None) -> bool:
    if a is None or b is None:
        return False
    places = zip((*a.inputs, *a.outputs), (*b.inputs, *b.outputs), strict=True)
    return a.factor == b.factor or any(p == q and p >= 0 for p, q in places)


class _Search:
    """Depth first, an operator after the other."""

    def __init__(self, body: LoopBody, size: int) -> None:
        self.body, self.size = body, size
        self.placements: dict[int, int] = {}
        self.chosen: list[Split | None] = []
        self._tried = 0

    def begin(self, tensor: int, dim: int) -> _Search | None:
        """The first way in which `dim` of the tensor can be divided; None if there is none."""
        self.placements[tensor] = dim
        return self if self._go_on() else None

    def _go_on(self) -> bool:
        if len(self.chosen) == len(self.body.operators):
            return self._consistent()
        operator = self.body.operators[len(self.chosen)]
        for split in self._options(operator):
            self._tried += 1
            if self._tried > MOST_TRIED:
                return False
            before = dict(self.placements)
            self.placements.update(_placed(operator, split))
            self.chosen.append(split)
            if self._go_on():
                return True
            self.chosen.pop()
            self.placements = before
        return False

    def _options(self, operator: Operator) -> Iterator[Split | None]:
        """The splits that agree with what is placed, those of the size that is divided first, and none at all."""
        fitting = [s for s in (*self._splits(operator), None) if self._agrees(operator, s)]
        return iter(sorted(fitting, key=lambda s: 1 if s is None else 0 if s.size == self.size else 2))

    def _splits(self, operator: Operator) -> tuple[Split, ...]:
        rule = RULES.get(operator.kind)
        if rule is None:
            return ()
        tensors = self.body.tensors
        found = rule(operator, *(tuple(tensors[t] for t in which) for which in (operator.inputs, operator.outputs)))
        return tuple(s for s in found if not (s.exchanges or s.inner_of or s.inside or s.only_with is not None))

    def _agrees(self, operator: Operator, split: Split | None) -> bool:
        """Whether it reads every tensor as it is placed, and in one way. No input of the body is a pending sum."""
        wanted = _placed(operator, split)
        places = (REPLICATE,) * len(operator.inputs) if split is None else split.inputs
        return all(
            wanted[tensor] == placement and self.placements.get(tensor, max(placement, REPLICATE)) == placement
            for tensor, placement in zip(operator.inputs, places, strict=True)
        )

    def _consistent(self) -> bool:
        """Whether what is carried on is placed as it came."""
        carried = enumerate(self.body.carried)
        return all(
            self.placements.get(made, REPLICATE) == self.placements.get(given, REPLICATE) for given, made in carried
        )


def _placed(operator: Operator, split: Split | None) -> dict[int, int]:
    tensors = (*operator.inputs, *operator.outputs)
    places = (REPLICATE,) * len(tensors) if split is None else (*split.inputs, *split.outputs)
    return dict(zip(tensors, places, strict=True))


def scan(operator: Operator, inputs: tuple[Tensor, ...], outputs: tuple[Tensor, ...]) -> tuple[Split, ...]:
    """A stacked tensor has the dim of steps before those of its entries; it is never divided."""
    body = body_of(operator.arguments)
    text = operator.arguments[3]
    assert isinstance(text, str)
    carried, stacked, shared = body.inputs
    of_steps = [False] * carried + [True] * stacked + [False] * shared
    made = (*body.carried, *body.stacked, *body.summed)
    made_of_steps = [False] * len(body.carried) + [True] * len(body.stacked) + [False] * len(body.summed)

    def outside(division: Division, tensor: int, stacks: bool) -> int:
        placement = division.placements.get(tensor, REPLICATE)
        return placement + 1 if stacks and placement >= 0 else placement

    return tuple(
        Split(
            d.factor,
            d.size,
            tuple(outside(d, tensor, stacks) for tensor, stacks in enumerate(of_steps)),
            tuple(outside(d, tensor, stacks) for tensor, stacks in zip(made, made_of_steps, strict=True)),
        )
        for d in divisions(text)
    )


def rule_of(kind: str) -> Rule | None:
    """The rule of a kind of operator; None where it has none. That of scans asks those of all others."""
    return scan if kind == SCAN else RULES.get(kind)
