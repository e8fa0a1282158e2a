"""Give batched products their batch dims back.

torch.matmul of (B, H, M, K) by (B, H, K, N) is traced as view → bmm → view with B and H merged into one dim. Blocks of
H alone are not contiguous in B·H, so a bmm could be divided over samples but never over heads: the tensor parallelism
of attention would be lost. This pass follows each merged tensor beside its unmerged form through transposes and
products, writes the products as `aten.matmul` of the unmerged forms, and lets dead code elimination take the merged
ones.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import fx

aten = torch.ops.aten
_VIEWS = (aten.view.default, aten._unsafe_view.default, aten.reshape.default)


def unmerge_batches(module: fx.GraphModule) -> None:
    """Rewrite `module` in place."""
    unmerged: dict[fx.Node, fx.Node] = {}
    for node in list(module.graph.nodes):
        if node.op != "call_function":
            continue
        source = node.args[0] if node.args and isinstance(node.args[0], fx.Node) else None
        if node.target in _VIEWS and source is not None:
            shape, before = _shape(node), _shape(source)
            if source in unmerged and _shape(unmerged[source]) == shape:
                node.replace_all_uses_with(unmerged[source])
            elif len(shape) == 3 and len(before) > 3 and shape == (math.prod(before[:-2]), *before[-2:]):
                unmerged[node] = _peel(source)
        elif source in unmerged and _swaps_last_two(node):
            assert source is not None
            with module.graph.inserting_after(node):
                unmerged[node] = _insert(module, node, aten.transpose.int, (unmerged[source], -2, -1))
        elif node.target is aten.bmm.default:
            left, right = (unmerged.get(a) for a in node.args[:2])
            if left is None or right is None or _shape(left)[:-2] != _shape(right)[:-2]:
                continue
            shape = _shape(node)
            with module.graph.inserting_after(node):
                product = _insert(module, node, aten.matmul.default, (left, right))
            with module.graph.inserting_after(product):
                merged = _insert(module, node, aten.view.default, (product, list(shape)))
            node.replace_all_uses_with(merged)
            module.graph.erase_node(node)  # the product now carries its sequence number
            unmerged[merged] = product


def _shape(node: fx.Node) -> tuple[int, ...]:
    return tuple(node.meta["val"].shape)


def _peel(node: fx.Node) -> fx.Node:
    """What `node` copies: an expand to the same shape and a copy made only so that a view could merge."""
    while node.target in (aten.expand.default, aten.clone.default) and _shape(node.args[0]) == _shape(node):  # type: ignore[arg-type]
        node = node.args[0]  # type: ignore[assignment]
    return node


def _swaps_last_two(node: fx.Node) -> bool:
    if node.target is aten.transpose.int:
        return {d % 3 for d in node.args[1:3]} == {1, 2}  # type: ignore[operator]
    return node.target is aten.permute.default and [d % 3 for d in node.args[1]] == [0, 2, 1]  # type: ignore[operator, union-attr]


def _insert(module: fx.GraphModule, like: fx.Node, target: Any, args: tuple[Any, ...]) -> fx.Node:
    """A new call with the phase, sequence number and origin of `like`."""
    node = module.graph.call_function(target, args)
    node.meta = dict(like.meta)
    node.meta["val"] = target(*(a.meta["val"] if isinstance(a, fx.Node) else a for a in args))
    return node
