"""What a stage uses its mesh axes for: as values (`axis_uses`), and in words, as in 'FSDP over axis 0 (8)'.

The search chooses a strategy for every operator and knows no such names. They are read from what it chose: the factor
that most FLOPs of the forward products with weights divide along an axis, what attention divides there, and what of
weights, gradients and optimizer state is stored in shards. The exports make degrees of them.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Literal, NamedTuple, Self

from alpa_explore import units
from alpa_explore.plans.phrases import layout_phrase, ranges
from alpa_explore.plans.records import PlanOperator, PlanStage
from alpa_explore.plans.report.specs import axes_phrase, axis_sizes
from alpa_explore.plans.value import PlanValue
from alpa_explore.sharding.spec import read_spec

_TOKENS, _WEIGHTS, _EXPERTS, _NOTHING = "tokens", "weights", "experts", "nothing"
_ROUTED = "alpa_explore.experts."
_PRODUCTS = ("aten.mm.", "aten.addmm.", "aten.convolution.", _ROUTED)
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
MOST = 0.95
"""Of FLOPs and of stored bytes: where a smaller share follows the use of an axis, the share is said, an export names it
as a limit, and no uniform layout does the same."""
_ZERO = {0: "data parallel", 1: "data parallel (ZeRO-1)", 2: "data parallel (ZeRO-2)", 3: "FSDP (ZeRO-3)"}


@dataclass(frozen=True, slots=True, kw_only=True)
class AxisUse:
    """What one mesh axis of more than one device is used for."""

    axis: int
    size: int
    kind: Literal["data", "tensor", "context", "replicated"]
    share: float
    """Of the FLOPs of the forward products that divide the axis as its kind says, routed experts aside."""
    zero: int = 0
    """Of a data or context parallel axis the ZeRO stage: 1 optimizer state, 2 gradients too, 3 weights too."""
    stored: float = 1.0
    """Of the bytes of what the ZeRO stage divides, the share that it does divide; at stage 0 that of optimizer state
    that is whole on every device of the axis."""
    sequence: bool = False
    """Whether norms divide the sequence over a tensor parallel axis (sequence parallelism)."""
    experts: bool = False
    """Whether its devices hold different experts (expert parallelism)."""
    exchange: str = ""
    """How the devices of a context parallel axis exchange keys and values: 'ring', 'all-gather' or 'Ulysses'."""
    zigzag: bool = False


class StageDegrees(NamedTuple):
    """What a stage does with its devices; each degree is a number of devices."""

    tensor: int = 1
    data: int = 1
    context: int = 1
    replicated: int = 1
    expert: int = 1
    """Devices that hold different experts."""
    expert_tensor: int = 1
    """Devices that share each matrix of an expert; 1 without experts."""
    zero: int = 0
    unknown: int = 1
    """Devices of a stage whose strategies are not in the plan."""

    @classmethod
    def of(cls, stage: PlanStage, uses: Sequence[AxisUse]) -> Self:
        """From the uses of the axes of the mesh."""
        size = {kind: math.prod(use.size for use in uses if use.kind == kind) for kind in cls._fields[:4]}
        routed = any(o.op.startswith(_ROUTED) for o in stage.operators)
        return cls(
            **size,
            expert=math.prod(use.size for use in uses if use.experts),
            expert_tensor=math.prod(u.size for u in uses if routed and u.kind == "tensor" and not u.experts),
            zero=max((use.zero for use in uses), default=0),
            unknown=1 if uses else len(stage.devices),
        )

    @property
    def divisions(self) -> int:
        """Parts of a microbatch, each of other samples."""
        return self.data * self.unknown

    @property
    def words(self) -> str:
        """'TP 2 · DP 4 · ZeRO-1'."""
        degrees = {"TP": self.tensor, "DP": self.data, "CP": self.context, "EP": self.expert}
        return layout_phrase(degrees, *self.rest(alone=True))

    def rest(self, *, alone: bool) -> tuple[str, ...]:
        """What is no degree of parallelism."""
        one = alone and math.prod(self[:4]) * self.unknown == 1
        return (
            "1 device" if one else f"{self.unknown} devices" if self.unknown > 1 else "",
            f"{self.replicated} copies" if self.replicated > 1 else "",
            f"ZeRO-{self.zero}" if self.zero else "",
        )


def axis_uses(stage: PlanStage) -> tuple[AxisUse, ...]:
    """The use of each mesh axis of more than one device, in order; empty for a plan without strategies."""
    forward = [o for o in stage.operators if o.phase == "forward"]
    sizes = axis_sizes(stage.logical_mesh)
    return tuple(_use(stage, forward, axis, size) for axis, size in enumerate(sizes)) if forward else ()


def parallelism(stage: PlanStage) -> tuple[str, ...]:
    """For each mesh axis of more than one device what it is used for; empty for a plan without strategies."""
    return tuple(map(use_phrase, axis_uses(stage)))


def parallelism_lines(plan: PlanValue) -> tuple[str, ...]:
    """A line for each group of stages with the same uses of axes of the same sizes: 'stages 0–3: …'."""
    stages_of: dict[str, list[int]] = defaultdict(list)
    parallelisms: dict[int, tuple[str, ...]] = {}
    for stage, described in zip(plan.stages, plan.representatives(), strict=True):
        if id(described) not in parallelisms:
            parallelisms[id(described)] = parallelism(described)
        if uses := parallelisms[id(described)]:
            sizes = axis_sizes(stage.logical_mesh)
            axes_of: dict[str, list[int]] = defaultdict(list)
            for axis, use in enumerate(uses):
                axes_of[use].append(axis)
            named = (
                f"{use} over {axes_phrase(axes)} ({units.shape([sizes[a] for a in axes])})"
                for use, axes in axes_of.items()
            )
            stages_of[", ".join(named)].append(stage.index)
    if len(plan.stages) == 1:
        return tuple(stages_of)
    return tuple(f"stage{'s' * (len(s) > 1)} {ranges(s)}: {text}" for text, s in stages_of.items())


def use_phrase(use: AxisUse) -> str:
    """'tensor parallel with sequence', 'FSDP (ZeRO-3) and expert parallel', 'data parallel (80 % of the FLOPs)'."""
    if use.kind == "context":
        text = f"context parallel ({use.exchange}{', zig-zag' * use.zigzag})"
        text += f" and {_zero_phrase(use)}" * (use.zero == 3)
    elif use.kind == "data":
        text = _zero_phrase(use)
    elif use.kind == "tensor":
        text = "tensor parallel" + " with sequence" * use.sequence
    else:
        text = "replicated"
    if use.experts:
        return f"{text} and expert parallel"
    return text if use.share >= MOST else f"{text} ({units.percent(use.share)} of the FLOPs)"


def _zero_phrase(use: AxisUse) -> str:
    """'FSDP (ZeRO-3)', 'data parallel (ZeRO-2 for 80 % of the bytes)'."""
    if use.zero == 0 or use.stored >= MOST:
        return _ZERO[use.zero]
    return f"{_ZERO[use.zero][:-1]} for {units.percent(use.stored)} of the bytes)"


def _use(stage: PlanStage, forward: Sequence[PlanOperator], axis: int, size: int) -> AxisUse:
    shares = _shares([o for o in forward if o.op.startswith(_PRODUCTS)], axis)
    dense = {use: share for use, share in shares.items() if use != _EXPERTS}
    use = max(dense or {_NOTHING: 1.0}, key=lambda name: dense.get(name, 0.0))
    share, experts = shares.get(use, 1.0), bool(shares.get(_EXPERTS))
    if experts:
        share /= sum(dense.values()) or 1.0
    if use == _TOKENS:
        exchange, zigzag = _exchange(forward, axis)
        zero, stored = _zero_stage(stage, axis)
        return AxisUse(
            axis=axis,
            size=size,
            kind="context" if exchange else "data",
            share=share,
            zero=zero,
            stored=stored,
            experts=experts,
            exchange=exchange,
            zigzag=zigzag,
        )
    if use == _WEIGHTS:
        norms = _shares([o for o in forward if any(word in o.op for word in _NORMS)], axis)
        sequence = bool(norms) and norms.get(_NOTHING, 0.0) < 0.5
        return AxisUse(axis=axis, size=size, kind="tensor", share=share, sequence=sequence, experts=experts)
    return AxisUse(axis=axis, size=size, kind="replicated", share=share, experts=experts)


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


def _exchange(forward: Sequence[PlanOperator], axis: int) -> tuple[str, bool]:
    """How attention divides the tokens of a sample along an axis, and whether in zig-zag order; '' where it divides
    samples."""
    for factor in sorted({_factor(o, axis) for o in forward if o.op.startswith("alpa_explore.attention.")}):
        for start, name in _CONTEXT.items():
            if factor.startswith(start):
                return name, factor.endswith("zigzag")
    return "", False


def _zero_stage(stage: PlanStage, axis: int) -> tuple[int, float]:
    """(the ZeRO stage along an axis, by bytes; `AxisUse.stored`)."""
    computed = _computed_in_shards(stage, axis)
    updates = [o for o in stage.operators if o.phase == "update" and not computed & {*o.input_names[:1]}]
    states = [(o.output, float(math.prod(o.output_shape))) for o in updates]
    weights, gradients = (_stored(stage, role, computed) for role in ("weight", "accumulator"))
    for zero, stored in ((3, weights), (2, gradients), (1, states)):
        if (share := _divided(stored, axis)) > 0.5:
            return zero, share
    return 0, 1.0 - share


def _computed_in_shards(stage: PlanStage, axis: int) -> set[str]:
    """What forward operators read in shards along an axis. Weights among it, as those of experts that the devices of
    the axis divide, are nowhere whole, and their shards are none of ZeRO."""
    reads = (zip(o.input_names, o.inputs, strict=False) for o in stage.operators if o.phase == "forward")
    return {name for pairs in reads for name, spec in pairs if _divides(spec, axis)}


def _stored(stage: PlanStage, role: str, left_out: set[str]) -> list[tuple[str, float]]:
    """(spec, bytes of the whole) of weights or gradients; all count alike in a file of an earlier version."""
    return [(t.spec, float(t.bytes or 1)) for t in stage.tensors if t.role == role and t.name not in left_out]


def _divided(stored: Sequence[tuple[str, float]], axis: int) -> float:
    """The share of the bytes that is in shards along an axis."""
    total = sum(size for _, size in stored)
    return sum(size for spec, size in stored if _divides(spec, axis)) / total if total else 0.0


@cache
def _divides(spec: str, axis: int) -> bool:
    return any(axis in axes for axes in read_spec(spec).dims)
