"""A function of a step, traced: its calls as the operators of a body."""

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import torch
from torch import fx
from torch.fx.experimental.proxy_tensor import make_fx

from alpa_explore.graph import Argument, Operator, Phase, Ref, Tensor, counts, tensor_refs
from alpa_explore.graph.loops import LoopBody, body_tensor
from alpa_explore.tracing.aten import DROPPED_KEYWORDS, draws, operator_flops
from alpa_explore.tracing.symbols import to_symbol
from alpa_explore.units import DTYPE_BYTES

_Tensors = Sequence[torch.Tensor]
_VIEWS = ("aten.view.default", "aten._unsafe_view.default", "aten.reshape.default")
_SPLIT = {
    "aten.unsafe_split.Tensor": "aten.split.Tensor",
    "aten.unsafe_split_with_sizes.default": "aten.split_with_sizes.default",
}
"""Kinds that make the same and have no rule."""
_SAME = ("aten.alias.default", "aten.detach.default", "aten.lift_fresh_copy.default")


def traced_body(
    function: Callable[..., list[torch.Tensor]],
    inputs: _Tensors,
    counted: tuple[int, int, int],
    made: tuple[int, int, int],
    kept: Sequence[int] = (),
) -> LoopBody | None:
    """The body that computes `function`, which takes `counted` and returns `made` carried, stacked and shared (summed)
    tensors. The inputs at `kept` are stacked, too. None where it cannot be a body."""
    traced = make_fx(function)(*inputs)
    # Without what writes into its own tensors (a GRU cell does); torch does that of no function that differentiates.
    with torch.no_grad():
        graph = make_fx(torch.func.functionalize(traced, remove="mutations"))(*(t.detach() for t in inputs)).graph
    graph.eliminate_dead_code()
    writer = _Writer()
    for node in graph.nodes:
        if node.op == "output":
            results = [writer.numbers[n] for n in node.args[0]]
        elif not writer.add(node):
            return None
    carried, stacked, summed = made
    return LoopBody(
        tensors=tuple(writer.tensors),
        operators=tuple(writer.operators),
        inputs=counted,
        carried=tuple(results[:carried]),
        stacked=(*results[carried : carried + stacked], *kept),
        summed=tuple(results[carried + stacked : carried + stacked + summed]),
    )


class _Writer:
    """Writes the nodes of a traced step as operators."""

    def __init__(self) -> None:
        self.tensors: list[Tensor] = []
        self.operators: list[Operator] = []
        self.numbers: dict[fx.Node, int] = {}
        self._parts: dict[fx.Node, Mapping[int, int]] = {}

    def add(self, node: fx.Node) -> bool:
        """False where the node cannot be an operator of a body."""
        if node.op == "placeholder":
            self.numbers[node] = self._tensor(node.meta["val"])
            return True
        if node.op != "call_function":
            return False
        if node.target is operator.getitem:
            source, place = node.args
            self.numbers[node] = self._parts[source][place]  # type: ignore[index]  # a node and a number
            return True
        if not isinstance(node.target, torch._ops.OpOverload) or node.target._schema.is_mutable:
            return False
        return self._add_call(node, str(node.target))

    def _add_call(self, node: fx.Node, kind: str) -> bool:
        value = node.meta["val"]
        single = isinstance(value, torch.Tensor)
        made = dict(enumerate([value] if single else value))
        known = all(t is None or str(t.dtype).removeprefix("torch.") in DTYPE_BYTES for t in made.values())
        if draws(kind) or not known:
            return False
        if kind in _SAME:
            self.numbers[node] = self.numbers[node.args[0]]  # type: ignore[index]  # a node
            return True
        arguments = tuple(self._argument(a) for a in node.args)
        keywords = tuple((k, self._argument(v)) for k, v in node.kwargs.items() if k not in DROPPED_KEYWORDS)
        kind = _SPLIT.get(kind, kind)
        if kind in _VIEWS:
            kind, arguments = "aten.view.default", (arguments[0], tuple(value.shape))
        elif kind in ("aten.t.default", "aten.transpose.int"):
            kind, arguments = "aten.permute.default", (arguments[0], _order(arguments, value.dim()))
        outputs = {place: self._tensor(t) for place, t in made.items() if t is not None}
        inputs = tuple(t for a in (*arguments, *(v for _, v in keywords)) for t in tensor_refs(a))
        read, written = [self.tensors[t] for t in inputs], [self.tensors[t] for t in outputs.values()]
        values = [n.meta["val"] if isinstance(n, fx.Node) else n for n in node.args]
        self.operators.append(
            Operator(
                index=len(self.operators),
                name=f"step.{len(self.operators)}",
                kind=kind,
                phase=Phase.FORWARD,
                inputs=inputs,
                outputs=tuple(outputs.values()),
                arguments=arguments,
                keywords=keywords,
                flops=operator_flops(
                    kind, read, written, arguments, values, [t for t in made.values() if t is not None]
                ),
                bytes_accessed=counts.bytes_accessed(kind, read, written, arguments),
            )
        )
        if single:
            self.numbers[node] = outputs[0]
        else:
            self._parts[node] = outputs
        return True

    def _tensor(self, value: torch.Tensor) -> int:
        dtype = str(value.dtype).removeprefix("torch.")
        self.tensors.append(body_tensor(len(self.tensors), tuple(value.shape), dtype))
        return len(self.tensors) - 1

    def _argument(self, value: Any) -> Argument:
        if isinstance(value, fx.Node):
            return Ref(self.numbers[value])
        if isinstance(value, list | tuple):
            return tuple(self._argument(v) for v in value)
        if value is None or isinstance(value, bool | int | float | str):
            return value
        symbol = to_symbol(value)
        assert symbol is not None, f"an argument of type {type(value).__name__} is not supported"
        return symbol


def _order(arguments: Sequence[Argument], rank: int) -> tuple[int, ...]:
    """The dims of a transpose in the form of permute."""
    order = list(range(rank))
    first, second = 0, 1
    if len(arguments) > 1:
        first, second = (dim % rank for dim in cast("tuple[int, int]", arguments[1:3]))
    if rank > 1:
        order[first], order[second] = order[second], order[first]
    return tuple(order)
