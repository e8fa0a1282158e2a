"""The block of every forward operator: the repeated modules of a model, wherever they are.

`repeated_modules` finds one family of blocks, for the number of layers. Here each operator is looked up, so that a
model may have several families (encoder and decoder, the groups of a ResNet). A family is all of `path.0`, `path.1`, …;
its members are blocks where at least two of them run the same operators, with at least two matrix products each; where
no family has two such, members with that many products are enough (a hybrid with one block of each kind). Of nested
families the outermost is taken: a block, not its experts.
"""

from collections import Counter, defaultdict

from alpa_explore.graph import TrainingGraph
from alpa_explore.graph.counts import is_matrix_product


def repeated_modules(graph: TrainingGraph) -> tuple[str, ...]:
    """Paths of the largest numbered family of modules, in the order of the forward pass; empty where there is none.

    A family is all of `path.0`, `path.1`, …; of two equally large families the outer one is taken.
    """
    families: dict[str, dict[str, None]] = {}
    for operator in graph.forward_operators:
        for path in _numbered(operator.module):
            families.setdefault(path.rpartition(".")[0], {})[path] = None
    largest = max(families, key=lambda f: (len(families[f]), -f.count(".")), default=None)
    return tuple(families[largest]) if largest is not None and len(families[largest]) > 1 else ()


OUTSIDE = -1
"""In place of the block of an operator that belongs to none."""
_LEAST_PRODUCTS = 2
"""Matrix products of a block: a list of linear layers alone is not one of blocks."""


def blocks_of(graph: TrainingGraph) -> tuple[int, ...]:
    """For each forward operator, by position, the number of its block, counted from 0 in the order of the forward pass;
    OUTSIDE for operators before, between and behind the blocks."""
    return tuple(number for number, _ in blocks_with_paths(graph))


def blocks_with_paths(graph: TrainingGraph) -> tuple[tuple[int, str], ...]:
    """The same with the path of the block's module, as `h.3`; '' outside."""
    kinds: dict[str, list[str]] = defaultdict(list)
    paths = [_numbered(operator.module) for operator in graph.forward_operators]
    for operator, prefixes in zip(graph.forward_operators, paths, strict=True):
        for prefix in prefixes:
            kinds[prefix].append(operator.kind)
    equal: dict[tuple[str, tuple[str, ...]], int] = defaultdict(int)
    for path, of_member in kinds.items():
        if sum(map(is_matrix_product, of_member)) >= _LEAST_PRODUCTS:
            equal[path.rpartition(".")[0], tuple(of_member)] += 1
    families = {family for (family, _), members in equal.items() if members > 1}
    if not families:
        members_of = Counter(family for family, _ in equal)
        families = {family for family, members in members_of.items() if members > 1}
    numbers: dict[str, int] = {}
    found = []
    for prefixes in paths:
        path = next((p for p in prefixes if p.rpartition(".")[0] in families), "")
        found.append((numbers.setdefault(path, len(numbers)) if path else OUTSIDE, path))
    return tuple(found)


def _numbered(module: str) -> list[str]:
    """The prefixes of a module's path that end in a number, the shortest first."""
    parts = module.split(".")
    return [".".join(parts[: place + 1]) for place, part in enumerate(parts) if part.isdecimal()]
