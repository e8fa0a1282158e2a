"""What a stage uses its mesh axes for, in the field's words: 'FSDP over axis 0 (8), tensor parallel over axis 1 (4)'.

The search chooses a strategy for every operator and knows no such names. They are read from what it chose: the factor
that most FLOPs of the forward products with weights divide along an axis, what attention divides there, and what of
weights, gradients and optimizer state is stored in shards.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from alpa_explore import units
from alpa_explore.plans.phrases import ranges
from alpa_explore.plans.records import PlanOperator, PlanStage
from alpa_explore.plans.report.specs import axis_sizes, read_spec
from alpa_explore.plans.value import PlanValue

_TOKENS, _WEIGHTS, _EXPERTS, _NOTHING = "tokens", "weights", "experts", "nothing"
_PRODUCTS = ("aten.mm.", "aten.addmm.", "aten.convolution.", "alpa_explore.experts.")
"""Forward operators that multiply activations by weights."""
_USE_OF_FACTOR = {
    "m": _TOKENS,
    "batch": _TOKENS,
    "tokens": _TOKENS,
    "experts": _EXPERTS,
    "exchange": _EXPERTS,
    "-": _NOTHING,
}
"""Other factors are dims of a weight."""
_CONTEXT = {"queries": "all-gather", "ring": "ring", "ulysses": "Ulysses", "heads": "Ulysses", "query-heads": "Ulysses"}
"""How attention divides a sequence, by how its factor begins. Where it divides heads on an axis that divides tokens of
the products, heads and positions change places around it, outside the operator in place of inside."""
_NORMS = ("norm",)
_MOST = 0.95
"""Where a use has a smaller share of the FLOPs, the share is said."""


def parallelism(stage: PlanStage) -> tuple[str, ...]:
    """For each mesh axis of more than one device what it is used for; empty for a plan without strategies."""
    forward = [o for o in stage.operators if o.phase == "forward"]
    return tuple(_use(stage, forward, axis) for axis in range(len(axis_sizes(stage.logical_mesh)))) if forward else ()


def parallelism_lines(plan: PlanValue) -> tuple[str, ...]:
    """A line for each group of stages with the same uses of axes of the same sizes: 'stages 0–3: …'."""
    stages_of: dict[str, list[int]] = defaultdict(list)
    for stage in plan.stages:
        if uses := parallelism(stage):
            sizes = axis_sizes(stage.logical_mesh)
            axes_of: dict[str, list[int]] = defaultdict(list)
            for axis, use in enumerate(uses):
                axes_of[use].append(axis)
            named = (
                f"{use} over {_axes(axes)} ({units.shape([sizes[a] for a in axes])})" for use, axes in axes_of.items()
            )
            stages_of[", ".join(named)].append(stage.index)
    if len(plan.stages) == 1:
        return tuple(stages_of)
    return tuple(f"stage{'s' * (len(s) > 1)} {ranges(s)}: {text}" for text, s in stages_of.items())


def _use(stage: PlanStage, forward: Sequence[PlanOperator], axis: int) -> str:
    shares = _shares([o for o in forward if o.op.startswith(_PRODUCTS)], axis)
    dense = {use: share for use, share in shares.items() if use != _EXPERTS}
    use = max(dense or {_NOTHING: 1.0}, key=lambda name: dense.get(name, 0.0))
    if use == _TOKENS:
        text = _of_tokens(stage, forward, axis)
    elif use == _WEIGHTS:
        norms = _shares([o for o in forward if any(word in o.op for word in _NORMS)], axis)
        text = "tensor parallel" + (" with sequence" if norms.get(_NOTHING, 0.0) < 0.5 and norms else "")
    else:
        text = "replicated"
    if shares.get(_EXPERTS):
        text += " and expert parallel"
    elif shares.get(use, 1.0) < _MOST:
        text += f" ({units.percent(shares[use])} of the FLOPs)"
    return text


def _shares(operators: Iterable[PlanOperator], axis: int) -> dict[str, float]:
    """What operators divide along an axis -> its share of their FLOPs."""
    flops: dict[str, float] = defaultdict(float)
    for operator in operators:
        factor = _factor(operator, axis)
        flops[_USE_OF_FACTOR.get(factor, _WEIGHTS)] += operator.flops
    total = sum(flops.values())
    return {use: value / total for use, value in flops.items()} if total else {}


def _factor(operator: PlanOperator, axis: int) -> str:
    factors = operator.strategy.split("·")
    return factors[axis] if axis < len(factors) else "-"


def _of_tokens(stage: PlanStage, forward: Sequence[PlanOperator], axis: int) -> str:
    """The name of an axis along which tokens are divided: those of a sample among devices, or samples."""
    factors = {_factor(o, axis) for o in forward if o.op.startswith("alpa_explore.attention.")}
    stored = {role: _stored_share(stage, role, axis) for role in ("weight", "accumulator")}
    for factor in sorted(factors):
        for start, name in _CONTEXT.items():
            if factor.startswith(start):
                text = f"context parallel ({name}{', zig-zag' if factor.endswith('zigzag') else ''})"
                return text + (" and FSDP (ZeRO-3)" if stored["weight"] > 0.5 else "")
    if stored["weight"] > 0.5:
        return "FSDP (ZeRO-3)"
    if stored["accumulator"] > 0.5:
        return "data parallel (ZeRO-2)"
    updates = [o for o in stage.operators if o.phase == "update"]
    divided = sum(o.optimizer_bytes for o in updates if _divides(o.output, axis))
    return "data parallel" + (" (ZeRO-1)" if divided > 0.5 * sum(o.optimizer_bytes for o in updates) else "")


def _stored_share(stage: PlanStage, role: str, axis: int) -> float:
    """The share of the weights that are stored in shards along an axis, by number: a file has no sizes of them."""
    specs = [t.spec for t in stage.tensors if t.role == role and read_spec(t.spec).dims]
    return sum(_divides(spec, axis) for spec in specs) / len(specs) if specs else 0.0


def _axes(axes: Sequence[int]) -> str:
    return f"axis {axes[0]}" if len(axes) == 1 else f"axes {' and '.join(map(str, axes))}"


def _divides(spec: str, axis: int) -> bool:
    return any(axis in axes for axes in read_spec(spec).dims)
