"""Operators as plain PyTorch runs them on a GPU: slower kernels, kernels beside them, and what autograd keeps of them.

The graph has one operator for what a fused kernel computes, with one pass over each tensor. PyTorch has not always such
a kernel. All of a graph's operators of a kind are treated alike; the figures are in `tuning`.

- Torch.compile lets no model of transformers leave out its masks (PyTorch 2.13 says it exports): causal attention has
  one of all scores, which all its layers share, and other attention one whose rows are one number, expanded. Fused
  kernels take no such mask, so that is computed in float32, score by score.
- Attention without mask is flash attention. With a mask, or a window (of which PyTorch makes a mask of all scores in
  every call, and as many heads of keys and values as of queries), it is the kernel that the device has for masks; with
  large heads, or where those of values have another size, it is the memory-efficient one. Neither skips blocks under a
  mask. Sinks are no argument of theirs: a model spells such attention out, reads and writes all scores in each step,
  and keeps their shares.
- A convolution of cuDNN reaches a share of the rate of a product, and reads its operands again and again where its
  channels are few; of NCHW tensors copies are made in the other order of dims. A depthwise one reads its operands from
  the caches for every product.
- cuDNN launches the steps of a recurrence from one call.
- Norms and log-softmax read their tensor again once they know its statistics.
- Routed experts are two grouped products with kernels around them (transformers' `grouped_mm`): rows are gathered,
  the gate computed, results weighted, put back and summed, and backward added by sorted indices.
- A fused optimizer step reads gradient and state once and writes weight and state. Torch's `foreach`, and the kernels
  of each weight ('plain'), pass over the tensors several times (`FOREACH`). With a master copy of 16-bit weights their
  gradients are cast to it, and the updated weights back; frameworks for large models do so in the fused kernel.

Of any software, states of 'bfloat16' are what torch's optimizers keep of such weights, without a master copy; those of
'8-bit' are moments of a byte with a float32 scale for each block (Dettmers et al., "8-bit Optimizers via Block-wise
Quantization", ICLR 2022, arXiv 2110.02861), of one fused kernel.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from alpa_explore.cluster import Software
from alpa_explore.cost import tuning
from alpa_explore.graph import Operator, Phase, Ref, Tensor, TrainingGraph, Unfused
from alpa_explore.graph.counts import RECURRENCES, ROUTED, attention_flops, attention_options, matrix_shapes, packet
from alpa_explore.units import DTYPE_BYTES

_ATTENTION, _ATTENTION_BACKWARD = "alpa_explore.attention", "alpa_explore.attention_backward"
_PRODUCTS, _TRANSPOSES = ("aten.mm", "aten.addmm"), ("aten.t", "aten.permute", "aten.transpose")
_CONVOLUTION, _CONVOLUTION_BACKWARD = "aten.convolution", "aten.convolution_backward"
_MASK = 3
"""Its place among the arguments of attention."""
_OF_TRANSFORMERS = "sdpa_attention.py"
"""The file of transformers that calls torch's attention."""
FOREACH = {"adam": 18, "adamw": 20, "sgd": 3, "sgd_momentum": 8}
"""Numbers that the kernels of a `foreach` step read and write for each element; those of each weight do the same."""
BLOCK = 256
"""Elements of 8-bit moments that share a scale."""
_INDEX_BYTES = 8
_PRODUCTS_OF_FLASH = {False: 1.0, True: 4 / 5}
"""Products of the backward pass over those of flash attention, which computes the scores again."""
_PERMUTATIONS = 3
"""Kept for every row of experts: its place among the sorted rows, its token, and its place among the unsorted ones."""


def as_plain_pytorch(graph: TrainingGraph, *, fuses: bool) -> TrainingGraph:
    """`graph` with its operators as PyTorch runs them; with `fuses` a compiler fuses the pointwise kernels."""
    differentiated = {o.forward for o in graph.operators if o.phase is Phase.BACKWARD}
    shared: set[tuple[int, ...]] = set()
    """Shapes of masks that another layer keeps."""
    return replace(
        graph, operators=tuple(_plain(o, graph, o.index in differentiated, fuses, shared) for o in graph.operators)
    )


def _plain(
    operator: Operator, graph: TrainingGraph, keeps: bool, fuses: bool, shared: set[tuple[int, ...]]
) -> Operator:
    name, launches = packet(operator.kind), operator.launches
    inputs = [graph.tensors[t] for t in operator.inputs]
    found: Unfused | None = None
    if name in (_ATTENTION, _ATTENTION_BACKWARD):
        forward = operator if operator.forward is None else graph.operators[operator.forward]
        if packet(forward.kind) == _ATTENTION:
            found, more = _attention(operator, forward, graph, keeps, shared if fuses else None)
            launches += more
    elif name in ROUTED:
        found = _experts(operator, inputs, keeps, fuses)
        launches += tuning.EXPERT_LAUNCHES
    elif name in (_CONVOLUTION, _CONVOLUTION_BACKWARD):
        found = _convolution(operator, inputs[name == _CONVOLUTION_BACKWARD :][1], fuses)
    elif name in _PRODUCTS:
        found = _product(operator, graph, fuses)
    elif name in RECURRENCES:
        launches = 1 + launches // tuning.STEPS_IN_A_LAUNCH
    elif name in tuning.PASSES_AGAIN and not fuses:
        found = Unfused(moved_bytes=round(operator.bytes_accessed * tuning.PASSES_AGAIN[name]))
    same = found is None and launches == operator.launches
    return operator if same else replace(operator, unfused=found, launches=launches)


def _attention(
    operator: Operator, forward: Operator, graph: TrainingGraph, keeps: bool, shared_masks: set[tuple[int, ...]] | None
) -> tuple[Unfused, int]:
    """(how attention runs, kernels beside its own); `shared_masks` for software that compiles."""
    query, key, value = (graph.tensors[t] for t in forward.inputs[:3])
    samples, heads, rows, _ = query.shape
    shared, columns, width = key.shape[1], key.shape[2], key.shape[3] + value.shape[3]
    element, mask = DTYPE_BYTES[query.dtype], forward.arguments[_MASK]
    options = attention_options(forward.kind, forward.arguments)
    repeated = samples * (heads - shared) * columns * width * element
    windowed = options.window > 0
    all_scores = attention_flops(query.shape, value.shape, causal=False) / max(forward.flops, 1)
    backward = operator.phase is Phase.BACKWARD
    # The gradient of queries is summed in float32, and those of keys and values are made for each head of queries: in
    # sizes of the gradient of the result.
    workspaces = (0,) * (2 + 2 * (heads > shared)) * (backward and element == 2)
    small = element == 2 and key.shape[3] == value.shape[3] <= tuning.MASKED_HEAD
    under_mask = all_scores if small else all_scores / tuning.EFFICIENT_ATTENTION
    if options.sink is not None:
        scores = samples * heads * rows * columns * element
        # The shares of all scores and the sink, and where in each row the largest is.
        kept = scores + samples * heads * rows * (element + _INDEX_BYTES) + repeated
        passes, launched = tuning.SPELLED_OUT[backward]
        return Unfused(slowdown=all_scores, moved_bytes=passes * scores, kept_bytes=kept * keeps), launched
    if mask is None and not windowed and shared_masks is not None and forward.source.startswith(_OF_TRANSFORMERS):
        if not options.causal:
            scores, cast = samples * heads * rows * columns, query.elements + key.elements + value.elements
            return Unfused(
                slowdown=_PRODUCTS_OF_FLASH[backward],
                moved_bytes=tuning.SCORE_BYTES[backward] * scores + tuning.CAST_BYTES * cast,
                kept_bytes=(4 * scores + (4 - element) * cast + repeated * 4 // element) * keeps,
                in_float32=True,
            ), tuning.MASK_LAUNCHES
        kept = repeated
        if keeps and (rows, columns) not in shared_masks:
            shared_masks.add((rows, columns))
            kept += rows * columns * element
        return Unfused(
            slowdown=under_mask, moved_bytes=2 * repeated, kept_bytes=kept * keeps, workspaces=workspaces, masked=small
        ), tuning.MASK_LAUNCHES
    if mask is None and not windowed:
        equal = key.shape[3] == value.shape[3]
        return Unfused(slowdown=1 if equal else 1 / tuning.EFFICIENT_ATTENTION, workspaces=workspaces), 0
    if windowed:
        kept = rows * columns * element + repeated
    else:
        boolean = isinstance(mask, Ref) and graph.tensors[mask.tensor].dtype == "bool"
        kept = graph.tensors[mask.tensor].elements * element if isinstance(mask, Ref) and boolean else 0
    return Unfused(
        slowdown=under_mask, moved_bytes=2 * kept, kept_bytes=kept * keeps, workspaces=workspaces, masked=small
    ), tuning.MASK_LAUNCHES


def _product(operator: Operator, graph: TrainingGraph, fuses: bool) -> Unfused | None:
    rows = 8
    unaligned: dict[int, int] = {}
    first = len(operator.inputs) - 2
    for place, tensor in enumerate((*operator.inputs[-2:], operator.outputs[0]), first):
        of, producer = graph.tensors[tensor], graph.tensors[tensor].producer
        if DTYPE_BYTES[of.dtype] != 2:
            return None
        transposed = (
            tensor != operator.outputs[0]
            and producer is not None
            and packet(graph.operators[producer].kind) in _TRANSPOSES
        )
        multiple = math.gcd(of.shape[0 if transposed else 1], 8)
        rows = min(rows, multiple)
        if multiple < 8:
            unaligned[place] = of.bytes
    if rows == 8:
        return None
    if fuses:  # copies are padded
        return Unfused(moved_bytes=2 * sum(unaligned.values()), workspaces=tuple(unaligned))
    return Unfused(slowdown=1 / tuning.UNALIGNED[rows], unaligned=True)


def _convolution(operator: Operator, weight: Tensor, fuses: bool) -> Unfused:
    backward = packet(operator.kind) == _CONVOLUTION_BACKWARD
    transposed, groups = operator.arguments[6 + backward], operator.arguments[8 + backward]
    assert isinstance(groups, int)
    first, second = weight.shape[:2]
    made = second if transposed else first // groups
    if groups > 1 and second == 1:
        return Unfused(moved_bytes=round(operator.flops * tuning.DEPTHWISE_BYTES))
    depth = weight.elements // first
    read = operator.flops * DTYPE_BYTES[weight.dtype] * tuning.CONVOLUTION_READS / min(made, depth)
    # A compiler lays tensors out as cuDNN wants them.
    moved = round(read) + (0 if fuses else 2 * operator.bytes_accessed)
    unaligned = made % 8 > 0 or depth % 8 > 0
    return Unfused(slowdown=1 / tuning.CONVOLUTION_SHARE, moved_bytes=moved, unaligned=unaligned)


def _experts(operator: Operator, inputs: Sequence[Tensor], keeps: bool, fuses: bool) -> Unfused:
    name = packet(operator.kind)
    backward = ROUTED[name].products > 1
    *ups, down = matrix_shapes(name, [t.shape for t in inputs], operator.arguments)
    tokens, width = inputs[0].shape
    element, rows = DTYPE_BYTES[inputs[0].dtype], inputs[ROUTED[name].chosen].elements
    inner = down[1] * down[2] // width
    hidden = sum(up[1] * up[2] for up in ups) // width
    place = ROUTED[name].matrices
    limit, biased = operator.arguments[place + 5], bool(operator.arguments[place + 1])
    gate = "limited" if limit else "gated" if hidden > inner else "plain"
    steps = tuning.EXPERT_STEPS[backward]
    of_inner = 0 if fuses else steps[gate]
    each_row = of_inner * inner + steps["rows"] * width + biased * steps["bias"] * (hidden + width)
    fused = (2 * hidden + inner if backward else hidden + inner) * fuses
    moved = element * (rows * (each_row + fused) + (1 + backward) * tokens * width)
    kept_inner = 0 if fuses else tuning.KEPT_OF_GATE[gate]
    kept = rows * ((kept_inner * inner + width + 1) * element + _PERMUTATIONS * _INDEX_BYTES)
    return Unfused(moved_bytes=moved, kept_bytes=kept * keeps)


def as_software_updates(graph: TrainingGraph, software: Software) -> TrainingGraph:
    """`graph` with the optimizer states and steps of its software."""
    if not software.plain_loop and software.states == "float32":
        return graph
    operators, parameters = list(graph.operators), []
    for parameter in graph.parameters:
        weight, step = graph.tensors[parameter.tensor], graph.operators[parameter.update]
        optimizer, element = step.kind.partition(".")[2], DTYPE_BYTES[weight.dtype]
        moments = parameter.state_bytes_per_element // max(element, 4) - (element < 4)
        moved = round(weight.elements * step_bytes(optimizer, moments, element, software))
        operators[step.index] = replace(step, bytes_accessed=moved)
        parameters.append(replace(parameter, state_bytes_per_element=state_bytes(moments, element, software)))
    return replace(graph, operators=tuple(operators), parameters=tuple(parameters))


def state_bytes(moments: float, element: int, software: Software) -> float:
    """Bytes of optimizer state for each number of a weight, itself of `element` bytes: its moments, and the master copy
    of 16 bits."""
    if software.states == "8-bit":
        return moments * (1 + 4 / BLOCK)
    if element >= 4 or software.states == "bfloat16":
        return moments * element
    return 4 * moments + 4


def step_bytes(optimizer: str, moments: float, element: int, software: Software) -> float:
    """Bytes that a step moves for each number of a weight of `element` bytes."""
    state = state_bytes(moments, element, software)
    has_master = element < 4 and software.states == "float32"
    if software.states == "8-bit" or not software.plain_loop:
        return (2 if has_master else 3) * element + 2 * state  # the gradient is read and the weight written, else read
    numbers = 3 + 2 * moments if software.update == "fused" else FOREACH[optimizer]
    return (4 if has_master else element) * numbers + has_master * 2 * (4 + element)
