"""Where in the model an operator is called: module path, source line, name of the torch function.

Two mechanisms are active while the model is traced: forward hooks record the path of the running module, and a
torch-function mode annotates the nodes that are traced inside each torch call of the model.

torch.matmul of (B, H, M, K) by (B, H, K, N) is traced as view → bmm → view, with B and H merged into one dim. Blocks of
H alone are not contiguous in B·H, so the bmm could be sharded over samples but never over heads, which would exclude
the tensor parallelism of attention. `unmerge` tracks the unmerged form of each merged tensor through transposes and
products, rewrites the products as `aten.matmul` of the unmerged forms, and leaves the merged ones to dead code
elimination.
"""

import inspect
import math
import os
import sys
import sysconfig
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import CodeType, FrameType, TracebackType
from typing import Any, cast

import torch
from torch import Tensor, fx, nn
from torch.fx.traceback import annotate
from torch.overrides import TorchFunctionMode, resolve_name
from torch.utils._python_dispatch import _disable_current_modes

from alpa_explore.tracing.cancelling import stop_if_cancelled
from alpa_explore.tracing.joint_graph import input_checks
from alpa_explore.tracing.joint_graph.calls import attention, functions, recurrence
from alpa_explore.tracing.joint_graph.input_checks import KnownValues

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


MODULE, SOURCE = "alpa_explore_module", "alpa_explore_source"
"""Keys in a traced node's meta['custom']."""

_HIDDEN = (os.path.dirname(torch.__file__) + os.sep, os.path.dirname(os.path.dirname(__file__)) + os.sep)
_INSTALLED = tuple({sysconfig.get_path(name) + os.sep for name in ("stdlib", "platstdlib", "purelib", "platlib")})
"""Where libraries are; what stands elsewhere is the user's own."""
_OF_CONTIGUOUS = frozenset(
    (
        *(torch.linalg.det, torch.det, Tensor.det, torch.logdet, Tensor.logdet),
        *(torch.linalg.slogdet, torch.slogdet, Tensor.slogdet, torch.linalg.solve, torch.linalg.solve_ex),
    )
)
"""Functions whose operators are given contiguous matrices (`aten.LAYOUT_DEPENDENT`)."""


@dataclass(slots=True, kw_only=True)
class TracePosition:
    """The position that the trace has reached; after an exception, where it was raised."""

    modules: list[str] = field(default_factory=list)
    """Paths of the running modules, outermost first."""
    function: str = ""
    """The running torch function; '' between calls."""
    watchers: list[Callable[[str], object]] = field(default_factory=list)
    """Called with the path of each module before it is entered."""
    finite: set[str] = field(default_factory=set)
    """Paths of the modules that branch on whether values are finite."""

    @property
    def module(self) -> str:
        """Path of the innermost running module; '' for the model itself."""
        return self.modules[-1] if self.modules else ""

    @contextmanager
    def entering(self, watcher: Callable[[str], object]) -> Iterator[None]:
        """Tell `watcher` of each module that is entered meanwhile."""
        self.watchers.append(watcher)
        try:
            yield
        finally:
            self.watchers.remove(watcher)


@contextmanager
def follow_modules(model: nn.Module, place: TracePosition) -> Iterator[None]:
    """Keep `place.modules` up to date while the model runs; the model's own hooks are not changed."""
    handles = []
    for path, module in model.named_modules():
        enter, leave = _hooks(path, place)
        handles += [module.register_forward_pre_hook(enter, prepend=True), module.register_forward_hook(leave)]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _hooks(path: str, place: TracePosition) -> tuple[Callable[..., None], Callable[..., None]]:
    def enter(module: nn.Module, args: object) -> None:
        for watcher in place.watchers:
            watcher(path)
        place.modules.append(path)

    def leave(module: nn.Module, args: object, output: object) -> None:
        # Not run after an exception, so that `place` still shows where it was raised.
        place.modules.pop()

    return enter, leave


class AnnotateCalls(TorchFunctionMode):
    """Annotates the nodes of each torch call with the module and source line that made it; ends a cancelled capture."""

    def __init__(self, place: TracePosition) -> None:
        super().__init__()
        self._place = place
        self._known = KnownValues()
        self._selected = attention.SelectedRows()

    def __torch_function__(
        self, function: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        stop_if_cancelled()
        kwargs = kwargs or {}
        if getattr(function, "__name__", "") == "__get__":  # tensor.shape and similar accesses create no node
            return function(*args, **kwargs)
        args, kwargs = _on_cpu(function, args, kwargs)
        if function in _OF_CONTIGUOUS and args:
            args = (args[0].contiguous(), *args[1:])
        known = self._known.readable(function, args)
        if known is not None:
            with _disable_current_modes():
                return function(known, *args[1:], **kwargs)
        usual = self._known.assumed(function, args)
        if usual is not None:
            self._place.finite.add(self._place.module)
            return usual
        places = self._known.places(function, args)
        if places is not None:
            return args[0][tuple(torch.tensor(place) for place in places)]
        if function is not functions.CTC:
            self._selected.refuse(args)
        passed = input_checks.outcome(function, args, calling_frame)
        if passed is not None:
            return passed
        self._place.function = resolve_name(function) or getattr(function, "__name__", str(function))
        with annotate({MODULE: self._place.module, SOURCE: caller()}):
            function = self._selected.select if function in attention.SELECT else _whole(function)
            if function is torch._grouped_mm and _lacks_fake_rule(*args, **kwargs):
                function = torch.ops.transformers.grouped_mm_fallback
                args, kwargs = (*args[:2], args[2] if args[2:] else kwargs["offs"]), {}
            result = None if attention.written(function, args) else function(*args, **kwargs)
        self._known.follow(function, args, kwargs, result)
        self._place.function = ""
        return result


def _whole(function: Any) -> Any:
    """The function that makes one operator of a call, in place of torch's own; other functions are returned."""
    if function is attention.CALL:
        return attention.as_one_operator
    if function in recurrence.CALLS:
        return recurrence.CALLS[function]
    return functions.CALLS.get(function, function)


def _on_cpu(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The call with its device replaced by the CPU, where all fake tensors are: a model may name a GPU.

    In a torch built without CUDA, mixing fake tensors of different devices would crash the process.
    """
    if kwargs.get("device") is not None:
        kwargs = {**kwargs, "device": "cpu"}
    if function is Tensor.to:
        args = (args[0], *("cpu" if _is_device(a) else a for a in args[1:]))
    return args, kwargs


def _is_device(value: object) -> bool:
    return isinstance(value, torch.device | str | int) and not isinstance(value, bool)


def _lacks_fake_rule(
    left: Tensor,
    right: Tensor,
    offs: Tensor | None = None,
    bias: Tensor | None = None,
    out_dtype: torch.dtype | None = None,
) -> bool:
    """True for a grouped product that torch 2.13 cannot trace and the operator of Hugging Face can.

    torch's operator has a fake rule for bfloat16 only. The other one computes the same, has fake and backward rules for
    every dtype, and is the one that Hugging Face models call when they are compiled.
    """
    plain = (left.dim(), right.dim()) == (2, 3) and offs is not None and bias is None and out_dtype is None
    return plain and left.dtype != torch.bfloat16 and hasattr(torch.ops.transformers, "grouped_mm_fallback")


def calling_frame() -> FrameType | None:
    """The innermost running frame outside torch and this package."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and _hidden(frame.f_code):
        frame = frame.f_back
    return frame


def caller() -> str:
    """'file.py:123' of the innermost running line outside torch and this package; '' if there is none."""
    frame = calling_frame()
    return "" if frame is None else f"{os.path.basename(frame.f_code.co_filename)}:{frame.f_lineno}"


def first_line(function: Callable[..., Any]) -> str:
    """'file.py:123' where a function of the model begins; '' for those of torch and this package."""
    code = inspect.unwrap(function).__code__
    return "" if _hidden(code) else f"{os.path.basename(code.co_filename)}:{code.co_firstlineno}"


def raised_at(trace: TracebackType | None) -> str:
    """'path/file.py:123' of the innermost line of a traceback outside torch and this package; '' if there is none.

    Where that is a line of an installed library, the innermost line of the user's own files stands before it.
    """
    location = own = ""
    while trace is not None:
        if not _hidden(code := trace.tb_frame.f_code):
            location = f"{code.co_filename}:{trace.tb_lineno}"
            own = own if code.co_filename.startswith(_INSTALLED) else location
        trace = trace.tb_next
    return f"{own} (which leads to {location})" if own and own != location else location


def _hidden(code: CodeType) -> bool:
    return code.co_filename.startswith(_HIDDEN) or code.co_filename.startswith("<")
