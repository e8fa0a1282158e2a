"""Restore the batch dims of batched matrix products.

torch.matmul of (B, H, M, K) by (B, H, K, N) is traced as view → bmm → view, with B and H merged into one dim. Blocks of
H alone are not contiguous in B·H, so the bmm could be sharded over samples but never over heads, which would exclude
the tensor parallelism of attention. This pass tracks the unmerged form of each merged tensor through transposes and
products, rewrites the products as `aten.matmul` of the unmerged forms, and leaves the merged ones to dead code
elimination.
"""

from __future__ import annotations

import math
from typing import Any, cast

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
            module.graph.erase_node(node)  # the new product has its sequence number
            unmerged[merged] = product


def _shape(node: fx.Node) -> tuple[int, ...]:
    return tuple(node.meta["val"].shape)


def _peel(node: fx.Node) -> fx.Node:
    """The node below copies and expands to the same shape, which are traced only to make a merging view possible."""
    while node.target in (aten.expand.default, aten.clone.default):
        source = cast(fx.Node, node.args[0])
        if _shape(source) != _shape(node):
            break
        node = source
    return node


def _swaps_last_two(node: fx.Node) -> bool:
    if node.target is aten.transpose.int:
        return {d % 3 for d in cast("tuple[int, ...]", node.args[1:3])} == {1, 2}
    return node.target is aten.permute.default and [d % 3 for d in cast("list[int]", node.args[1])] == [0, 2, 1]


def _insert(module: fx.GraphModule, template: fx.Node, target: Any, args: tuple[Any, ...]) -> fx.Node:
    """A new call with the phase, sequence number and origin of `template`."""
    node = module.graph.call_function(target, args)
    node.meta = dict(template.meta)
    node.meta["val"] = target(*(a.meta["val"] if isinstance(a, fx.Node) else a for a in args))
    return node
