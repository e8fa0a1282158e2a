"""Roles of mesh axes: data parallelism, sharded data parallelism, tensor parallelism with and without the sequence.

A role restricts the strategies of each node of a stage's sharding problem. On an axis with the role

- DATA, operators that can shard the batch do; weights, gradients (or their partial sums) and optimizer state are
  replicated;
- DATA_ZERO_1, the same, but each replica updates its shard of the weights and holds the optimizer state of that shard
  (ZeRO-1; Megatron's distributed optimizer);
- DATA_ZERO_2, the same, and gradients are accumulated in shards;
- SHARDED_DATA (ZeRO-3), operators do the same; weights, gradients and optimizer state are sharded;
- one of the EXPERT roles, the same as with the data role of that name, but routed experts are divided among the
  devices, to which tokens travel, and their weights, gradients and optimizer state with them (expert parallelism);
- TENSOR, as Megatron-LM runs it (Shoeybi et al. 2019, arXiv 1909.08053, §3): no operator shards samples, positions of
  the sequence or the residual stream. What remains is columns then rows of an MLP, heads, vocabulary; the activations
  between them are replicated, and so are their weights (norms). The weights of products are stored in the shards
  that these read, and the vocabulary of an embedding must be sharded;
- TENSOR_SEQUENCE, the same with sequence parallelism (Korthikanti et al. 2022, arXiv 2205.05198, §4.2): operators on
  the residual stream (norms, dropout, additions) shard the sequence; matrix products do not.

- one of the CONTEXT roles (context parallelism), operators shard the positions of the sequence, attention with its
  keys and values; weights, gradients and optimizer state are as with the data role of that name. Beside an axis with
  one of these they are shards of shards: Megatron-LM divides optimizer state, and torchtitan weights, over data and
  context parallel devices together.

Frozen weights are stored as the role stores weights; buffers and constants are replicated.

In a graph in which no dim is known to be of the sequence or of the residual stream (`dims`) both tensor roles say only
that no operator shards the batch: heavy ones, which are never replicated, must shard a dim of a weight.

A node without a strategy that follows all roles (a bias whose size is not divisible) keeps those that follow the most.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence

import numpy as np

from alpa_explore.baselines.dims import DimLabels, Label, dim_labels
from alpa_explore.graph import GIVEN_KINDS, Operator, Tensor, TensorKind, TrainingGraph
from alpa_explore.graph.counts import ROUTED, is_view, packet
from alpa_explore.intra_op.problem.sharding_problem import ShardingProblem
from alpa_explore.intra_op.stage.axis_options import NodeOptions, Option, batch_options, node_options
from alpa_explore.intra_op.stage.stage_problem import Node, NodeKind, StageProblem
from alpa_explore.numerics.arrays import Flags, Ints
from alpa_explore.pricing.tuning import TIE_SECONDS
from alpa_explore.sharding.spec import PARTIAL, REPLICATE
from alpa_explore.sharding.splits import splits_for


class Role(enum.Enum):
    """What one mesh axis is used for, and the ZeRO stage of what is stored along it."""

    DATA = "data", 0
    DATA_ZERO_1 = "data", 1
    DATA_ZERO_2 = "data", 2
    SHARDED_DATA = "data", 3
    EXPERT = "data and experts", 0
    EXPERT_ZERO_1 = "data and experts", 1
    EXPERT_ZERO_2 = "data and experts", 2
    EXPERT_SHARDED = "data and experts", 3
    TENSOR = "tensor", 0
    TENSOR_SEQUENCE = "tensor and sequence", 0
    CONTEXT = "context", 0
    CONTEXT_ZERO_1 = "context", 1
    CONTEXT_ZERO_2 = "context", 2
    CONTEXT_SHARDED = "context", 3

    @property
    def use(self) -> str:
        """What for."""
        return self.value[0]

    @property
    def zero(self) -> int:
        """The ZeRO stage."""
        return self.value[1]

    @property
    def experts(self) -> bool:
        """Whether it divides routed experts."""
        return self.use == "data and experts"

    @property
    def tensor(self) -> bool:
        """Whether it is one of tensor parallelism."""
        return self in (Role.TENSOR, Role.TENSOR_SEQUENCE)


_DIVIDED = (NodeKind.UPDATE, NodeKind.ACCUMULATOR)
"""For each ZeRO stage what it divides among replicas beyond the one before; from 3 on everything."""
_OVER_VOCABULARY = (
    "aten.embedding.default",
    "aten.embedding_dense_backward.default",
    "aten._log_softmax.default",
    "aten._log_softmax_backward_data.default",
    "aten.nll_loss_forward.default",
    "aten.nll_loss_backward.default",
)
"""Not heavy, but divided all the same: on every device Megatron-LM has a shard of the vocabulary and of the scores."""


def strategies_for_roles(
    problem: StageProblem, roles: Sequence[Role], labels: DimLabels | None = None, *, sums_once: bool = False
) -> dict[int, tuple[int, ...]]:
    """Node -> the strategies that follow `roles` (one for each axis); without the nodes that keep all of them.

    With `sums_once` replicas that hold whole gradients sum them once an iteration, never in a microbatch.
    `labels` are those of the whole graph, of which the stage is a part; computed here where they are not given.
    """
    assert len(roles) == len(problem.model.mesh.shape), "a role for each axis"
    if labels is None:
        labels = (
            dim_labels(problem.stage.layered.graph)
            if any(role.tensor or role.use == "context" for role in roles)
            else {}
        )
    batch, graph = batch_options(problem), problem.stage.layered.graph
    permitted = {}
    for v, (node, options) in enumerate(zip(problem.nodes, node_options(problem), strict=True)):
        if node.kind is NodeKind.SOURCE and graph.tensors[node.subject].kind not in GIVEN_KINDS:
            continue
        followed = np.zeros(len(options.labels), dtype=np.int64)
        for axis, role in enumerate(roles):
            if node.kind is NodeKind.OPERATOR and packet(graph.operators[node.subject].kind) in ROUTED:
                followed += _routed(node, axis, role)
                continue
            if node.kind is not NodeKind.OPERATOR:
                source = node.kind is NodeKind.SOURCE
                tensor = node.subject if source else graph.parameters[node.subject].tensor
                experts = role.experts and _is_of_experts(graph, tensor)
                if graph.tensors[tensor].kind in (TensorKind.BUFFER, TensorKind.CONSTANT):
                    follows = np.array([option[0] == REPLICATE for option in options.options], dtype=bool)
                else:
                    follows = (
                        _experts_stored(node, options)
                        if experts
                        else _stored(tensor, node, options, role, labels, sums_once)
                    )
                if role.tensor and _divided_by_products(problem, tensor):
                    follows = _sharded_if_any(node, options, follows)
            elif role.tensor:
                follows = _tensor_parallel(problem, node, options, axis, role, batch.get(v, frozenset()), labels)
            elif role.use == "context":
                follows = _context_parallel(problem, node, options, axis, batch.get(v, frozenset()), labels)
            else:
                cuts = batch.get(v, frozenset())
                follows = np.array([not cuts or option in cuts for option in options.options], dtype=bool)
            followed += follows[options.labels[:, axis]]
        best = np.flatnonzero(followed == followed.max())
        if len(best) < len(followed):
            permitted[v] = tuple(best.tolist())
    return permitted


def permitted_problem(
    problem: StageProblem,
    roles: Sequence[Role],
    labels: DimLabels | None = None,
    *,
    inverse_b: float = 0.0,
    sums_once: bool = False,
) -> tuple[ShardingProblem, tuple[Ints, ...]]:
    """(the sharding problem at 1/B of the strategies that follow `roles` alone, which they are of each node); the other
    arguments are those of `strategies_for_roles`.

    Among equally fast choices the leanest is the best: a weight that is stored in shards costs no time.
    """
    permitted = strategies_for_roles(problem, roles, labels, sums_once=sums_once)
    kept = tuple(
        np.array(permitted[v]) if v in permitted else np.arange(len(node.microbatch_seconds))
        for v, node in enumerate(problem.nodes)
    )
    price = TIE_SECONDS / problem.model.device.memory_bytes
    priced = problem.at(inverse_b=inverse_b, memory_price=price, microbatches_held=1, kept=kept)
    return priced, kept


def _routed(node: Node, axis: int, role: Role) -> Flags:
    """For each strategy of routed experts, whether it divides along an axis what the role says."""
    assert node.priced is not None
    factors = [s.factors[axis] for s in node.priced.strategies]
    divided = "exchange" if role.experts else "tokens"
    if role.tensor:  # the matrices of every expert, or the experts where gate and up are one matrix
        divided = "inner" if "inner" in factors else "experts"
    return np.array([factor == divided for factor in factors], dtype=bool)


def _is_of_experts(graph: TrainingGraph, tensor: int) -> bool:
    """Whether a weight is read by routed experts."""
    readers = graph.readers.get(tensor, ())
    return any(packet(graph.operators[r].kind) in ROUTED for r in readers)


def _experts_stored(node: Node, options: NodeOptions) -> Flags:
    """For each option of a node that stores a matrix of experts, whether devices hold different experts."""
    place = _stored_at(node)
    return np.array([option[place] == 0 for option in options.options], dtype=bool)


def _tensor_parallel(
    problem: StageProblem,
    node: Node,
    options: NodeOptions,
    axis: int,
    role: Role,
    batch: frozenset[Option],
    labels: DimLabels,
) -> Flags:
    """For each option of an operator, whether it is one of tensor parallelism."""
    graph = problem.stage.layered.graph
    operator = graph.operators[node.subject]
    labelled = [_labels(operator, option, labels) for option in options.options]
    in_batch: Flags = np.array([option in batch for option in options.options], dtype=bool)
    inner: Flags = ~in_batch & np.array([not found for found in labelled], dtype=bool)
    possible = np.zeros(len(options.options), dtype=bool)
    possible[options.at_axis[axis]] = True
    divides: Flags = np.array([any(p >= 0 for p in option) for option in options.options], dtype=bool)
    if operator.kind in _OVER_VOCABULARY or splits_for(operator, graph.tensors).heavy:
        dividing = inner & divides & possible
        return dividing if dividing.any() else inner
    if role is Role.TENSOR:
        return inner
    sequence: Flags = ~in_batch & np.array([found == {Label.POSITIONS} for found in labelled], dtype=bool)
    if (sequence & possible).any() and _on_residual(operator, graph.tensors, labels) and not is_view(operator.kind):
        count = len(operator.inputs)
        passes: Flags = np.array([PARTIAL in option[:count] for option in options.options], dtype=bool)
        return np.logical_or(sequence, passes)
    return np.logical_or(inner, sequence)


def _context_parallel(
    problem: StageProblem, node: Node, options: NodeOptions, axis: int, batch: frozenset[Option], labels: DimLabels
) -> Flags:
    """For each option of an operator, whether it shards the positions of as many tensors as any can."""
    operator = problem.stage.layered.graph.operators[node.subject]
    tensors = (*operator.inputs, *operator.outputs)
    along = (Label.POSITIONS, Label.ROWS)
    counts = np.zeros(len(options.options), dtype=np.int64)
    for place in options.at_axis[axis]:
        pairs = zip(tensors, options.options[place], strict=True)
        counts[place] = sum(labels.get((t, p)) in along for t, p in pairs if p >= 0)
    if counts.max() > 0:
        return np.asarray(counts == counts.max())
    return np.array([option not in batch for option in options.options], dtype=bool)


def _labels(operator: Operator, option: Option, labels: DimLabels) -> set[Label]:
    """The labels of the dims that an option shards."""
    pairs = zip((*operator.inputs, *operator.outputs), option, strict=True)
    return {labels[t, p] for t, p in pairs if p >= 0 and (t, p) in labels}


def _on_residual(operator: Operator, tensors: Sequence[Tensor], labels: DimLabels) -> bool:
    """Whether one of the operator's tensors has a dim of the sequence and one of the residual stream."""
    return any(
        {Label.POSITIONS, Label.RESIDUAL} <= {labels.get((t, d)) for d in range(len(tensors[t].shape))}
        for t in (*operator.inputs, *operator.outputs)
    )


def _divided_by_products(problem: StageProblem, tensor: int) -> bool:
    """Whether a tensor parallel operator reads a weight: a matrix product, or one over the vocabulary."""
    layered = problem.stage.layered
    operators = (layered.graph.operators[r] for r in layered.graph.readers.get(tensor, ()))
    return any(layered.products[o.index][1] is not None or o.kind in _OVER_VOCABULARY for o in operators)


def _sharded_if_any(node: Node, options: NodeOptions, follows: Flags) -> Flags:
    """Of the options that follow a role, those in which the stored tensor is sharded; all, where none is."""
    sharded = follows & np.array([option[_stored_at(node)] >= 0 for option in options.options], dtype=bool)
    return sharded if sharded.any() else follows


def _stored_at(node: Node) -> int:
    """The place of the stored tensor in an option of its node: the first output of an update, the only tensor of
    others."""
    return len(node.priced.strategies[0].inputs) if node.priced is not None else 0


def _stored(tensor: int, node: Node, options: NodeOptions, role: Role, labels: DimLabels, sums_once: bool) -> Flags:
    """For each option of a weight, frozen or not, an accumulator or an update, whether the stored tensor follows the
    role."""
    place = _stored_at(node)

    def follows(option: Option) -> bool:
        stored = option[place]
        if role.zero == 3 or node.kind in _DIVIDED[: role.zero]:
            return stored >= 0
        if not role.tensor:
            if sums_once and node.kind is NodeKind.ACCUMULATOR:
                return stored == PARTIAL
            return stored == REPLICATE or (node.kind is NodeKind.ACCUMULATOR and stored == PARTIAL)
        if stored < 0 or (tensor, stored) not in labels:
            return True
        # The gradient of learned positions comes out sharded along the sequence, and is gathered once an iteration.
        along = role is Role.TENSOR_SEQUENCE and node.kind is NodeKind.ACCUMULATOR
        return along and labels[tensor, stored] is Label.POSITIONS

    return np.array([follows(option) for option in options.options], dtype=bool)
