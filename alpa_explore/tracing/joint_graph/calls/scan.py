"""Calls of torch's `scan`, by the operator of `tracing.fused.scan`, or written as a loop over its steps.

torch keeps the function of a step as a graph inside the graph. Here that of the step, and that of its gradients, are
traced apart and become arguments of one operator, as text. Tensors that the function reads from around it are found by
running it, and become inputs of the operator. A step that draws random numbers, writes into a tensor from around it,
or holds a tensor of numbers is written out, step by step: right, and long to plan where the steps are many; the graph's
warnings say so.
"""

from __future__ import annotations

import importlib
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import torch
from torch import fx
from torch._guards import tracing
from torch._subclasses import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils._pytree import tree_flatten, tree_leaves, tree_map, tree_map_only, tree_unflatten

from alpa_explore.graph import Operator, Phase, Ref, Tensor, counts, tensor_refs
from alpa_explore.graph.loops import LoopBody, body_tensor, dump_body, without_unread
from alpa_explore.graph.operator import permutation
from alpa_explore.tracing.aten import DROPPED_KEYWORDS, draws, operator_flops
from alpa_explore.tracing.fused import scan as whole
from alpa_explore.tracing.symbols import frozen, tensors_in
from alpa_explore.units import DTYPE_BYTES

_LIBRARY = importlib.import_module("torch._higher_order_ops.scan")  # its package has the function under that name
_Step = Callable[..., tuple[Any, Any]]
_Tensors = Sequence[torch.Tensor]


def _scan(combine: _Step, init: _Tensors, xs: _Tensors, additional_inputs: _Tensors = ()) -> tuple[Any, Any]:
    """(the carry after the last step, every output stacked along dim 0), in the containers that `combine` returns."""
    found = _Traced.of(combine, list(init), list(xs), list(additional_inputs))
    if found is None:
        return _steps(combine, init, xs, additional_inputs)
    made = whole.scan(list(init), list(xs), found.shared, found.forward, found.backward, False)
    carries, outputs = found.containers
    carry = made[: carries.num_leaves]
    stacked = made[carries.num_leaves : carries.num_leaves + outputs.num_leaves]
    return tree_unflatten(carry, carries), tree_unflatten(stacked, outputs)


def _steps(combine: _Step, init: _Tensors, xs: _Tensors, additional_inputs: _Tensors = ()) -> tuple[Any, Any]:
    """The same, step by step."""
    made, carry = [], init
    for step in range(xs[0].shape[0]):
        carry, outputs = combine(*tree_leaves(carry), *(x[step] for x in xs), *additional_inputs)
        made.append(outputs)
    return carry, tree_map(lambda *steps: torch.stack(steps), *made)


def _run(function: Callable[..., Any], *arguments: Any) -> Any:
    return function(*arguments)


@contextmanager
def whole_scans() -> Iterator[None]:
    """While this is entered, torch's function calls `_scan` in place of its operator, with no compiler."""
    with patch.object(_LIBRARY, "scan_op", _scan), patch.object(_LIBRARY, "_maybe_compile_and_run_fn", _run):
        yield


class _Traced:
    """A step and its gradients as bodies, the tensors that it reads from around it, and the containers of its
    results."""

    def __init__(self, shared: list[torch.Tensor], containers: tuple[Any, Any], forward: str, backward: str) -> None:
        self.shared, self.containers, self.forward, self.backward = shared, containers, forward, backward

    @classmethod
    def of(cls, combine: _Step, init: _Tensors, xs: _Tensors, additional: _Tensors) -> _Traced | None:
        """None where a step cannot be a body."""
        around = Around()
        # Nothing of this belongs to the graph that is being traced. A scan inside a step is written out in it.
        with ExitStack() as stack:
            stack.enter_context(_disable_current_modes())
            stack.enter_context(tracing(None))
            stack.enter_context(FakeTensorMode())
            stack.enter_context(torch.enable_grad())
            stack.enter_context(patch.object(_LIBRARY, "scan_op", _steps))
            fakes = [*map(stand_in_carried, init), *(stand_in(x, 1) for x in xs), *map(stand_in, additional)]
            with around.recording(fakes):
                results = combine(*fakes)
            leaves, containers = zip(*(tree_flatten(r) for r in results), strict=True)
            if not all(around.is_inside(t) for part in leaves for t in part) or not _alike(init, leaves[0]):
                return None
            every = [*fakes, *map(stand_in, around.read)]

            def step(*tensors: torch.Tensor) -> list[torch.Tensor]:
                given = tensors[: len(fakes)]
                with around.replaying(given, tensors[len(fakes) :]):
                    return tree_leaves(combine(*given))

            carries, outputs = (len(part) for part in leaves)
            counted = len(init), len(xs), len(every) - len(init) - len(xs)
            backward = _backward(step, every, counted, [t for part in leaves for t in part])
            if backward is None:
                return None
            # What was carried before each step is an output, too, where the backward pass reads it.
            kept = [place for place in backward.taken if place < carries]
            forward = traced_body(step, every, counted, (carries, outputs, 0), kept)
        if forward is None:
            return None
        shared = [*additional, *around.values()]
        return cls(shared, (containers[0], containers[1]), dump_body(forward), dump_body(backward))


def _alike(given: _Tensors, made: _Tensors) -> bool:
    return [(t.shape, t.dtype) for t in given] == [(t.shape, t.dtype) for t in made]


def _backward(
    step: Callable[..., list[torch.Tensor]], inputs: _Tensors, counted: tuple[int, int, int], results: _Tensors
) -> LoopBody | None:
    """(gradients of what is carried on; what was carried, stacked inputs, gradients of the outputs; shared inputs) ->
    gradients of the inputs that have any."""
    carries, stacks, _ = counted
    gradients = [torch.empty_like(t).detach() for t in results if t.is_floating_point()]
    last = sum(t.is_floating_point() for t in results[:carries])
    own, shared = inputs[: carries + stacks], inputs[carries + stacks :]
    wanted_places = [place for place, t in enumerate(inputs) if t.requires_grad]

    def differentiated(*tensors: torch.Tensor) -> list[torch.Tensor]:
        of_last, rest = tensors[:last], tensors[last:]
        of_own, rest = rest[: len(own)], rest[len(own) :]
        of_outputs, of_shared = rest[: len(gradients) - last], rest[len(gradients) - last :]
        likes = zip((*of_own, *of_shared), inputs, strict=True)
        given = [t.detach().requires_grad_(like.requires_grad) for t, like in likes]
        made = [t for t in step(*given) if t.is_floating_point()]
        wanted = [given[place] for place in wanted_places]
        # A result that is made from nothing that is differentiated has no history.
        pairs = [(r, g) for r, g in zip(made, (*of_last, *of_outputs), strict=True) if r.requires_grad]
        if not pairs:
            return [torch.zeros_like(t) for t in wanted]
        found = torch.autograd.grad(
            [r for r, _ in pairs], wanted, [g for _, g in pairs], allow_unused=True, materialize_grads=True
        )
        return list(found)

    of_carried, of_own = (sum(place < end for place in wanted_places) for end in (carries, carries + stacks))
    body = traced_body(
        differentiated,
        [*gradients[:last], *own, *gradients[last:], *shared],
        (last, len(own) + len(gradients) - last, len(shared)),
        (of_carried, of_own - of_carried, len(wanted_places) - of_own),
    )
    return None if body is None else replace(without_unread(body), gradients=tuple(wanted_places))


def stand_in(tensor: torch.Tensor, first: int = 0) -> torch.Tensor:
    """A stand-in for a tensor, without its first dims."""
    made = torch.empty(tensor.shape[first:], dtype=tensor.dtype, device="cpu")
    return made.requires_grad_(tensor.requires_grad)


def stand_in_carried(tensor: torch.Tensor) -> torch.Tensor:
    """The same for what is carried: after the first step it has a gradient."""
    made = stand_in(tensor.detach())
    return made.requires_grad_(made.is_floating_point())


class Around(TorchFunctionMode):
    """What a step reads from around it: tensors that no call inside has made and that are none of its inputs.

    Inside it sees stand-ins for them. Calls that read nothing else belong around the step, too, unless they draw random
    numbers or write: they are run once, before the scan, and the step sees what stands in for their results.
    """

    def __init__(self) -> None:
        super().__init__()
        self.read: list[torch.Tensor] = []
        """Stand-ins that the step reads itself."""
        self._originals: dict[int, torch.Tensor] = {}
        """By the id of a stand-in the tensor around the step."""
        self._stand_ins: dict[int, torch.Tensor] = {}
        """By the id of a tensor around the step; of a result of `_calls`, which stands for itself, by its own."""
        self._calls: list[tuple[Any, Any, Any] | None] = []
        """(function, arguments, result), of stand-ins; None for a call that is run inside all the same."""
        self._inside: dict[int, torch.Tensor] = {}  # kept, so that no other tensor gets the same id
        self._left: Iterator[tuple[Any, Any, Any] | None] | None = None
        self._given: dict[int, torch.Tensor] | None = None

    @contextmanager
    def recording(self, inputs: _Tensors) -> Iterator[None]:
        """The first run of the step, which finds out what it reads."""
        self._inside = {id(t): t for t in inputs}
        with self:
            yield

    @contextmanager
    def replaying(self, inputs: _Tensors, given: _Tensors) -> Iterator[None]:
        """Another run, with `given` in place of `read`."""
        self._inside, self._left = {id(t): t for t in inputs}, iter(self._calls)
        self._given = {id(one): t for one, t in zip(self.read, given, strict=True)}
        with self:
            yield

    def is_inside(self, result: Any) -> bool:
        """Whether a result of the step is a tensor that it was given or that a call in it made."""
        return isinstance(result, torch.Tensor) and id(result) in self._inside

    def values(self) -> list[torch.Tensor]:
        """The tensors of `read`, where the scan is called."""
        known = dict(self._originals)
        for function, arguments, result in filter(None, self._calls):
            if tensors_in(result):
                args, kwargs = tree_map_only(torch.Tensor, lambda t: known[id(t)], arguments)
                made = tensors_in(function(*args, **kwargs))
                known.update((id(r), m) for r, m in zip(tensors_in(result), made, strict=True))
        return [known[id(t)] for t in self.read]

    def __torch_function__(
        self, function: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        arguments = args, kwargs or {}
        read = tensors_in(arguments)
        # What is around the step is run without its contexts.
        plain = torch.is_grad_enabled() and not any(torch.is_autocast_enabled(d) for d in ("cpu", "cuda"))
        if plain and read and not any(id(t) in self._inside for t in read):
            call = self._record(function, arguments) if self._left is None else next(self._left, None)
            if call is not None:
                return call[2]
        args, kwargs = tree_map_only(torch.Tensor, self._seen, arguments)
        made = function(*args, **kwargs)
        self._inside.update((id(t), t) for t in tensors_in(made))
        return made

    def _record(self, function: Any, arguments: Any) -> tuple[Any, Any, Any] | None:
        """Run a call that reads nothing of the step; None where it must be run in every step."""
        arguments = tree_map_only(torch.Tensor, self._standing_in, arguments)
        with _Repeatable() as watched:  # type: ignore[no-untyped-call]  # torch has no annotation
            made = function(*arguments[0], **arguments[1])
        call = (function, arguments, made) if watched.repeatable else None
        self._calls.append(call)
        if call is not None:
            self._stand_ins.update((id(t), t) for t in tensors_in(made))
        return call

    def _standing_in(self, tensor: torch.Tensor) -> torch.Tensor:
        found = self._stand_ins.get(id(tensor))
        if found is None:
            found = self._stand_ins[id(tensor)] = stand_in(tensor)
            self._originals[id(found)] = tensor
            self._stand_ins[id(found)] = found
        return found

    def _seen(self, tensor: torch.Tensor) -> torch.Tensor:
        if id(tensor) in self._inside:
            return tensor
        if self._given is not None:  # a tensor that no run has shown before stays: it becomes a constant
            known = self._stand_ins.get(id(tensor))
            return tensor if known is None else self._given.get(id(known), tensor)
        found = self._standing_in(tensor)
        if not any(t is found for t in self.read):
            self.read.append(found)
        return found


class _Repeatable(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch has no annotation
    """Whether calls give the same whenever they are run: they draw no random numbers and write into no tensor."""

    repeatable = True

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if torch.Tag.nondeterministic_seeded in func.tags or func._schema.is_mutable:
            self.repeatable = False
        return func(*args, **(kwargs or {}))


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
        arguments = tuple(frozen(a, self._ref) for a in node.args)
        keywords = tuple((k, frozen(v, self._ref)) for k, v in node.kwargs.items() if k not in DROPPED_KEYWORDS)
        kind = _SPLIT.get(kind, kind)
        if kind in _VIEWS:
            kind, arguments = "aten.view.default", (arguments[0], tuple(value.shape))
        elif kind in ("aten.t.default", "aten.transpose.int"):
            kind, arguments = "aten.permute.default", (arguments[0], permutation(kind, arguments, value.dim()))
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

    def _ref(self, node: fx.Node) -> Ref:
        return Ref(self.numbers[node])
