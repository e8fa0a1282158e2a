"""The joint graph of a model: AOTAutograd's trace of forward and backward on fake tensors (torch 2.13).

The model is traced as a function of its parameters, buffers and inputs, so that the model itself is not changed.
Attention and RMS norm that call torch's functions become one operator each (`calls.attention`, `calls.functions`), and
so do routed experts (`calls.experts`) and the steps of a recurrent layer (`calls.recurrence`, `calls.linear_scans`).
Two groups of operators are decomposed: losses, into what is computed for each number and the mean of that, and calls of
attention that the operator does not compute, into products and a softmax. Products over merged batch dims get their
batch dims back (`unmerge`), so that heads can be sharded. A trace has no writes: those of PyTorch are noted.

`flex_attention` has no backward pass on CPUs, where all tensors of a capture are, without a compiler. A call without a
change of its scores is attention with the block mask as a mask of all scores: one operator (`attention_calls`). Others
are spelled out, and their plans say so. In both, blocks that the mask leaves out are computed: their time is estimated
too high.
"""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar
from unittest.mock import patch

import torch
from torch import Tensor, fx, nn
from torch._functorch.aot_autograd import aot_export_joint_with_descriptors
from torch._subclasses.functional_tensor import FunctionalTensor, FunctionalTensorMode
from torch.autograd.function import BackwardCFunction
from torch.fx.experimental.proxy_tensor import get_proxy_mode, get_proxy_slot
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.attention import flex_attention as library

from alpa_explore.errors import CancelledError
from alpa_explore.graph.counts import is_view
from alpa_explore.tracing.autocast import autocast_as_written
from alpa_explore.tracing.cancelling import stop_if_cancelled
from alpa_explore.tracing.joint_graph.calls.attention import whole_attention
from alpa_explore.tracing.joint_graph.calls.experts import whole_experts
from alpa_explore.tracing.joint_graph.calls.functions import in_torchs_modules
from alpa_explore.tracing.joint_graph.calls.linear_scans import whole_linear_scans
from alpa_explore.tracing.joint_graph.calls.scan import whole_scans
from alpa_explore.tracing.joint_graph.input_checks import VALUE_ERRORS, passed_checks
from alpa_explore.tracing.joint_graph.locate import first_line, unmerge_batches

Score = Callable[..., Tensor]


def _attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    score: Score,
    blocks: tuple[Any, ...],
    scale: float,
    options: dict[str, Any],
    *captured: tuple[Any, ...],
) -> tuple[Tensor, Tensor, Tensor]:
    """(output, logsumexp, largest scores) of a call, as torch's operator returns them; the two last are empty where
    attention is one operator."""
    allowed = blocks[-1]
    shape = (query.shape[0], query.shape[1], query.shape[2], key.shape[2])
    if score is library._identity and not (options.get("OUTPUT_LOGSUMEXP") or options.get("OUTPUT_MAX")):
        mask = None if allowed is library.noop_mask else _each(allowed, None, shape)
        # Called by its name: while a model is traced it is one operator.
        output = functional.scaled_dot_product_attention(query, key, value, mask, scale=scale, enable_gqa=True)
        return output, query.new_empty(0), query.new_empty(0)
    groups = query.shape[1] // key.shape[1]
    if groups > 1:
        key, value = key.repeat_interleave(groups, 1), value.repeat_interleave(groups, 1)
    scores = _each(score, query @ key.transpose(-2, -1) * scale, shape)
    if allowed is not library.noop_mask:
        scores = scores.masked_fill(~_each(allowed, None, shape), -torch.inf)
    reached = scores.logsumexp(-1)
    # A row with no key to look at is zero, as torch has it.
    weights = (scores - reached.masked_fill(reached == -torch.inf, 0).unsqueeze(-1)).exp()
    return weights.to(value.dtype) @ value, reached, scores.amax(-1)


def _each(function: Score, scores: Tensor | None, shape: tuple[int, ...]) -> Tensor:
    """`function` of every score and its indices (sample, head, query, key), of `shape`."""
    for dim in reversed(range(4)):
        along = tuple(0 if d == dim else None for d in range(4))
        function = torch.vmap(function, in_dims=along if scores is None else (0, *along))
    indices = [torch.arange(n) for n in shape]
    return function(*indices) if scores is None else function(scores, *indices)


@contextmanager
def plain_flex_attention() -> Iterator[None]:
    """While this is entered, torch's function calls `_attention` in place of its operator, with no compiler."""
    with (
        patch.object(library, "flex_attention_hop", _attention),
        patch.object(library, "_validate_device", lambda query, key, value: None),
        patch.object(library, "_FLEX_ATTENTION_DISABLE_COMPILE_DEBUG", True),
    ):
        yield


T = TypeVar("T")
Run = Callable[[Sequence[Tensor]], tuple[Tensor, Mapping[int, Tensor], Sequence[Tensor]]]
"""The function that is traced: flat tensors -> scalar loss, what the model puts in the place of some, and what it
returns beside its loss."""

aten = torch.ops.aten


def _of_each_number(loss: torch._ops.OpOverload) -> Callable[..., Any]:
    """A loss, or its gradient, of each number by itself, with the mean or sum of the numbers behind it, or before it.

    PyTorch's kernel divides by the elements that it sees, which is wrong on a shard of the batch: DTensor gives wrong
    gradients, without an error.
    """
    names = [argument.name for argument in loss._schema.arguments]

    def split(*args: Any, **kwargs: Any) -> Any:
        given = dict(zip(names, args, strict=False)) | kwargs
        reduction = given.pop("reduction", 1)
        if not reduction:
            return NotImplemented
        if (gradient := given.get("grad_output")) is None:
            each = loss(**given, reduction=0)
            return each.mean() if reduction == 1 else each.sum()
        given["grad_output"] = gradient / given["self"].numel() if reduction == 1 else gradient
        return loss(**given, reduction=0)

    return split


_LOGITS = aten.binary_cross_entropy_with_logits.default
_IN_OWN_MEMORY = (
    aten.mse_loss.default,
    aten.smooth_l1_loss.default,
    aten.soft_margin_loss.default,
    aten.binary_cross_entropy.default,
)
"""Losses of which the mean or sum is the first number in the memory of the loss of each."""
_LOSSES = (
    *_IN_OWN_MEMORY,
    _LOGITS,
    aten.huber_loss.default,
    aten.mse_loss_backward.default,
    aten.smooth_l1_loss_backward.default,
    aten.soft_margin_loss_backward.default,
    aten.binary_cross_entropy_backward.default,
    aten.huber_loss_backward.default,
)
_INTO_ZEROS = (
    aten.index_add.default,
    aten.index_put.default,
    aten._unsafe_index_put.default,
    aten.scatter_add.default,
    aten.scatter.src,
)
_SCATTERS = (
    aten.slice_scatter.default,
    aten.select_scatter.default,
    aten.diagonal_scatter.default,
    aten.as_strided_scatter.default,
)
"""What a trace makes of a write into a view."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JointGraph:
    """A traced training step: `inputs[i]` is the node of the i-th traced tensor, `gradients[i]` that of its
    gradient."""

    module: fx.GraphModule
    inputs: tuple[fx.Node, ...]
    tangent: fx.Node | None
    """The gradient of the loss with respect to itself: one."""
    loss: fx.Node
    gradients: tuple[fx.Node | None, ...]
    written: Mapping[int, fx.Node]
    """Number of a traced tensor that the forward pass writes -> its new value."""
    returned: frozenset[str]
    """Names of the nodes whose values the model returns beside its loss."""
    accumulates: dict[fx.Node, int]
    """Node that adds gradients -> seq_nr of the forward operator that produced the tensor whose gradient it is."""
    own_backward: Mapping[int | None, str]
    """seq_nr of a call of a torch.autograd.Function -> 'file.py:123', where the model writes its backward pass."""
    in_place: frozenset[str]
    """Names of the nodes that PyTorch computes in the memory of their first argument."""


class _Step(nn.Module):
    """The function that is traced: flat tensors -> scalar loss, what it replaces. It has no parameters of its own."""

    def __init__(self, run: Run, accumulates: dict[fx.Node, int]) -> None:
        super().__init__()
        self._run, self._accumulates = run, accumulates
        self.own_backward: dict[int | None, str] = {}
        self.replaced: tuple[int, ...] = ()
        """Numbers of the tensors that the last run replaced; the outputs after the loss are their new values."""
        self.returned: frozenset[str] = frozenset()
        """Names of the nodes of what it returned beside the loss."""

    def forward(self, tensors: list[Tensor]) -> tuple[Tensor, ...]:
        loss, replaced, returned = self._run(tensors)
        if get_proxy_mode() is not None:
            _record_accumulations(loss, self._accumulates, self.own_backward)
            self.returned = frozenset(node.name for value in returned if (node := _node(value)) is not None)
        self.replaced = tuple(replaced)
        return (loss, *(tensor.detach().clone() for tensor in replaced.values()))


def trace(run: Run, tensors: Sequence[Tensor]) -> JointGraph:
    """Trace `run(tensors) -> loss` and its backward; gradients for the fake tensors that require them.

    A model that reads a value while it runs is traced a second time in the mode of torch.compile: Hugging Face models,
    for example, read attention masks to take shortcuts unless they are being compiled.
    """
    return with_values_read(partial(_trace_once, run, tensors))


def with_values_read(work: Callable[[], T]) -> T:
    """The result of `work`; where the model reads a value, that in the mode of torch.compile."""
    try:
        return work()
    except VALUE_ERRORS:
        with patch.object(torch.compiler, "_is_compiling_flag", True):
            return work()


@contextmanager
def as_traced() -> Iterator[None]:
    """Torch's functions as a trace has them."""
    with ExitStack() as stack:
        stack.enter_context(autocast_as_written())
        stack.enter_context(whole_attention())
        stack.enter_context(in_torchs_modules())
        stack.enter_context(whole_experts())
        stack.enter_context(whole_linear_scans())
        stack.enter_context(plain_flex_attention())
        stack.enter_context(whole_scans())
        stack.enter_context(passed_checks())
        stack.enter_context(torch.compiler.set_stance("force_eager"))  # parts that the model compiles are traced, too
        stack.enter_context(_plain_kernels())
        # torch logs a traceback for each failed shape rule; the CaptureError already reports it.
        stack.enter_context(patch.object(logging.getLogger("torch._subclasses.fake_tensor"), "disabled", True))
        yield


def _trace_once(run: Run, tensors: Sequence[Tensor]) -> JointGraph:
    accumulates: dict[fx.Node, int] = {}
    in_place: set[str] = set()
    with ExitStack() as stack:
        stack.enter_context(as_traced())
        stack.enter_context(_noting_writes(in_place))
        step = _Step(run, accumulates)
        joint = aot_export_joint_with_descriptors(
            stack,
            step,
            (list(tensors),),
            decompositions={loss: _of_each_number(loss) for loss in _LOSSES},
            _disable_torch_fn_metadata_mode=True,
        )
        unmerge_batches(joint.graph_module)
        in_place |= _unseen_writes(joint.graph_module)
        return _read(joint.graph_module, len(tensors), accumulates, step, frozenset(in_place))


@contextmanager
def _noting_writes(in_place: set[str]) -> Iterator[None]:
    """While this is entered, the nodes that stand for a write into the first argument, by the model or by a formula of
    autograd, are noted `in_place`."""
    dispatch = FunctionalTensorMode.__torch_dispatch__

    def noting(mode: FunctionalTensorMode, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = dispatch(mode, function, types, args, kwargs)
        if args and made is args[0] and torch.Tag.inplace_view not in function.tags:
            node: Any = _node(made)
            while node is not None and is_view(str(node.target)):
                # The view of a tensor that was made anew, with what was written in its place.
                node = node.args[0]
                if node.target in _SCATTERS:
                    in_place.add(node.name)
                    node = node.args[1]
            if node is not None:
                in_place.add(node.name)
        return made

    with patch.object(FunctionalTensorMode, "__torch_dispatch__", noting):
        yield


@contextmanager
def _plain_kernels() -> Iterator[None]:
    """Attention that is not one operator as products and a softmax, without casts to fp32 for 16-bit inputs; nothing by
    oneDNN: its fused LSTM exists on CPUs only; without it one with projections is traced as products."""
    cuda = torch.backends.cuda
    # Not torch.backends.mkldnn.flags, which sets all flags and warns about missing GPUs.
    casts, one_dnn = cuda.fp16_bf16_reduction_math_sdp_allowed(), torch._C._get_mkldnn_enabled()  # type: ignore[no-untyped-call]  # torch has no annotation
    cuda.allow_fp16_bf16_reduction_math_sdp(True)
    torch._C._set_mkldnn_enabled(False)
    try:
        with sdpa_kernel(SDPBackend.MATH):
            yield
    finally:
        cuda.allow_fp16_bf16_reduction_math_sdp(bool(casts))
        torch._C._set_mkldnn_enabled(one_dnn)


def _unseen_writes(module: fx.GraphModule) -> set[str]:
    """The nodes that PyTorch computes in the memory of their first argument, but not in a trace: means and sums in
    kernels of losses, gradients that the engine of autograd adds to those that are there, and what formulas write into
    tensors of their own, which they leave out for tensors of other classes (`areAnyTensorSubclassLike`)."""
    found = set()
    losses, own = {str(loss) for loss in _IN_OWN_MEMORY}, (aten.mul.Tensor, aten.sub.Tensor, aten.div.Tensor)
    of_logits = {node.meta["seq_nr"] for node in module.graph.find_nodes(op="call_function", target=_LOGITS)}
    for node in module.graph.nodes:
        if node.meta.get("partitioner_tag") != "is_backward":
            if node.target in (aten.mean.default, aten.sum.default) and str(node.meta.get("original_aten")) in losses:
                found.add(node.name)
        elif node.meta.get("is_gradient_acc"):
            found |= {node.name} if node.target is aten.add.Tensor else set()
        elif node.meta.get("seq_nr") in of_logits:
            found |= {node.name} if node.target in own and node.args[0].target is not aten.sigmoid.default else set()
        elif node.target in _INTO_ZEROS:
            found.add(node.name)
    return found


def _read(
    module: fx.GraphModule, count: int, accumulates: dict[fx.Node, int], step: _Step, in_place: frozenset[str]
) -> JointGraph:
    """Identify inputs, loss and gradients by the descriptors that AOTAutograd puts on placeholders and outputs."""
    inputs: dict[int, fx.Node] = {}
    tangent = None
    for node in module.graph.find_nodes(op="placeholder"):
        described = node.meta["desc"]
        if type(described).__name__ == "PlainAOTInput":
            inputs[described.idx] = node
        elif type(described).__name__ == "TangentAOTInput":
            tangent = node
        # Else a token that orders side effects; drafting the operator that takes it raises CaptureError.
    (output,) = module.graph.find_nodes(op="output")
    loss = None
    gradients: dict[int, fx.Node | None] = {}
    written: dict[int, fx.Node] = {}
    for node, described in zip(output.args[0], output.meta["desc"], strict=True):
        kind = type(described).__name__
        if kind == "PlainAOTOutput":
            if described.idx:
                written[step.replaced[described.idx - 1]] = node.args[0]  # of the clone
            else:
                loss = node
        elif kind == "GradAOTOutput":
            gradients[described.grad_of.idx] = node
        elif kind == "InputMutationAOTOutput":
            written.setdefault(described.mutated_input.idx, node)
    assert loss is not None
    return JointGraph(
        module=module,
        inputs=tuple(inputs[i] for i in range(count)),
        tangent=tangent,
        loss=loss,
        gradients=tuple(gradients.get(i) for i in range(count)),
        written=written,
        returned=step.returned,
        accumulates={n: s for n, s in accumulates.items() if n.meta.get("is_gradient_acc")},
        own_backward=step.own_backward,
        in_place=in_place,
    )


def _record_accumulations(loss: Tensor, accumulates: dict[fx.Node, int], own_backward: dict[int | None, str]) -> None:
    """Note where the model writes backward passes itself in `own_backward`, and register a hook on each backward node
    that records which traced tensor it receives as the gradient of its output.

    Autograd adds gradients just before the node of the tensor's producer runs, and these additions carry the loss's
    seq_nr, not the producer's. The gradient that each node receives shows whose gradient each sum is. The first node
    that receives a sum is the right one: an addition passes the same tensor on to the producers of its operands.
    """
    waiting = [loss.grad_fn]
    seen: set[Any] = set()
    while waiting:
        node = waiting.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if isinstance(node, BackwardCFunction):
            own_backward[node._sequence_nr()] = first_line(type(node)._forward_cls.backward)
        node.register_prehook(_recorder(node, accumulates))
        waiting += [following for following, _ in node.next_functions]


def _recorder(grad_fn: Any, accumulates: dict[fx.Node, int]) -> Callable[[tuple[Any, ...]], None]:
    def record(gradients: tuple[Any, ...]) -> None:
        try:
            stop_if_cancelled()
        except CancelledError:
            torch.autograd.set_detect_anomaly(False)  # or torch prints a warning for this node; AOT restores the mode
            raise
        for gradient in gradients:
            node = _node(gradient)
            if node is not None:
                accumulates.setdefault(node, grad_fn._sequence_nr())

    return record


def _node(value: object) -> fx.Node | None:
    """The node of a traced tensor."""
    mode = get_proxy_mode()
    if mode is None or not isinstance(value, FunctionalTensor):
        return None
    slot = get_proxy_slot(value.from_functional(), mode.tracer, None)
    return None if slot is None else slot.proxy.node
