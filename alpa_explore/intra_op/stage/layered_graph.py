"""The training graph cut into layers: the layer of every operator, what is held, and what is recomputed.

A layer holds every forward tensor that one of its backward operators reads and that is not recomputed (`segments`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeVar

from alpa_explore.cluster import Software
from alpa_explore.cost.fusion import fuse, join_projections
from alpa_explore.cost.plain_kernels import as_plain_pytorch, as_software_updates
from alpa_explore.errors import OptionError
from alpa_explore.graph import GIVEN_KINDS, Operator, Phase, TensorKind, TrainingGraph, counts
from alpa_explore.graph.blocks import block_number, exchanged_elements, head_operators
from alpa_explore.graph.counts import is_matrix_product, packet
from alpa_explore.graph.low_precision import in_low_precision
from alpa_explore.intra_op.stage import tuning
from alpa_explore.intra_op.stage.recomputation import Recomputation
from alpa_explore.intra_op.stage.segments import hold, recomputed_in_kernel
from alpa_explore.sharding.rules.elementwise import RANDOM
from alpa_explore.sharding.spec_constraint import SpecConstraint
from alpa_explore.sharding.splits import with_discovered_splits

Place = TypeVar("Place", int, tuple[int, int])

_ZIGZAG = "alpa_explore.zigzag.default"

UPDATE_LAYER = -1
"""The layer of every update-phase operator."""


@dataclass(frozen=True, kw_only=True, eq=False)
class LayeredGraph:
    """`graph` with its operators assigned to layers."""

    graph: TrainingGraph
    num_layers: int
    layer_of: tuple[int, ...]
    """For each operator its layer; UPDATE_LAYER for the update phase."""
    storage: tuple[int, ...]
    """For each tensor the tensor whose memory it shares: itself, or the first tensor of a chain of views."""
    recomputation: Recomputation
    recomputed: frozenset[int]
    """Forward operators that the backward pass runs again."""
    segment_of: tuple[int, ...]
    """For each operator the segment with which it is recomputed; `segments.KEPT` where it is not."""
    waits: Mapping[int, tuple[int, ...]]
    """Backward operator -> the segments that must have been recomputed before it."""
    uses: tuple[int, ...]
    """For each operator how often its outputs are read, in all layers together."""
    products: tuple[tuple[int | None, int | None], ...]
    """For each operator the matrix product that made its first output and the one that reads it, if any: itself where
    it is one; views in between do not count."""
    held: tuple[tuple[int, ...], ...]
    """For each layer the (storage) tensors held from its forward to its backward pass, ascending."""
    in_kernel: frozenset[int]
    """The (storage) tensors that kernels of the backward pass compute again in place of reading them."""
    returns_together: bool
    """Whether the gradients of weights leave the backward pass together at its end, as torch.compile returns them."""
    contributions: tuple[tuple[int, ...], ...]
    """For each of `graph.parameters` the backward tensors whose sum over uses and microbatches is its gradient."""
    tables: frozenset[int]
    """Forward operators that make tables (`tables`): each device computes them whole."""
    spec_constraints: Mapping[int, tuple[SpecConstraint, ...]] = field(default_factory=dict)
    """Operator -> its spec constraints; most operators have none."""
    stored_constraints: Mapping[int, tuple[SpecConstraint, ...]] = field(default_factory=dict)
    """Position in `graph.parameters` -> the spec constraints on how it is stored."""

    @cached_property
    def block_of_parameter(self) -> tuple[int | None, ...]:
        """For each of `graph.parameters` the number of its block; None outside of blocks."""
        return tuple(block_number(parameter.name) for parameter in self.graph.parameters)

    @cached_property
    def gradient_makers(self) -> tuple[frozenset[int], ...]:
        """For each of `graph.parameters` the operators that make the terms of its gradient."""
        producers = ([self.graph.tensors[t].producer for t in grads] for grads in self.contributions)
        return tuple(frozenset(p for p in of_parameter if p is not None) for of_parameter in producers)

    @cached_property
    def parameter_users(self) -> tuple[frozenset[int], ...]:
        """For each of `graph.parameters` these and the operators that read it, but for the update."""
        readers = (self.graph.readers.get(parameter.tensor, ()) for parameter in self.graph.parameters)
        return tuple(
            frozenset(o for o in (*makers, *read) if self.layer_of[o] != UPDATE_LAYER)
            for makers, read in zip(self.gradient_makers, readers, strict=True)
        )

    @cached_property
    def head(self) -> frozenset[int]:
        """The forward operators behind the last block."""
        return head_operators(self.graph)

    @cached_property
    def all_held(self) -> frozenset[int]:
        """The (storage) tensors that any layer holds."""
        return frozenset().union(*self.held)

    @cached_property
    def exchanged_with(self) -> Mapping[int, float]:
        """Weight, or gradient of one in a microbatch -> the elements of its block, which are exchanged at once where
        that is done in every microbatch."""
        together = exchanged_elements(self.graph)
        return {
            tensor: elements
            for position, elements in together.items()
            for tensor in (self.graph.parameters[position].tensor, *self.contributions[position])
        }

    @cached_property
    def returned(self) -> frozenset[int]:
        """The (storage) tensors that the model returns beside its loss."""
        return frozenset(self.storage[t.index] for t in self.graph.tensors if t.kind is TensorKind.RETURNED)

    @cached_property
    def written(self) -> frozenset[int]:
        """The tensors that the forward pass puts in the place of buffers: they take the memory of these."""
        return frozenset(one.value for one in self.graph.written if one.value is not None)

    @cached_property
    def unstored(self) -> frozenset[int]:
        """The (storage) tensors that stay inside of the kernel that makes them; of `in_kernel` those that no other
        kernel of the forward pass reads. Log-softmax reads its rows twice: torch.compile stores them."""
        graph = self.graph
        outside: set[int] = set()
        for operator in graph.forward_operators:
            if not is_view(operator):
                for base in {self.storage[t] for t in operator.inputs} & self.in_kernel:
                    maker = graph.tensors[base].producer
                    if maker is None or operator.fused is None or operator.fused != graph.operators[maker].fused:
                        outside.add(base)
        inside = {t for o in graph.operators if not o.stored for t in o.outputs}
        if self.returns_together:
            softmax = [o for o in graph.forward_operators if packet(o.kind) == "aten._log_softmax"]
            inside -= {self.storage[o.inputs[0]] for o in softmax}
        return frozenset(inside | (self.in_kernel - outside))

    @cached_property
    def computed_from(self) -> Mapping[int, tuple[int, ...]]:
        """What kernels compute again or keep to themselves -> the (storage) tensors from which they compute it."""
        found: dict[int, tuple[int, ...]] = {}
        for operator in self.graph.operators:
            for tensor in operator.outputs:
                if not operator.stored or tensor in self.unstored or tensor in self.in_kernel:
                    read = (self.storage[t] for t in operator.inputs)
                    found[tensor] = tuple(dict.fromkeys(b for t in read for b in found.get(t, (t,))))
        return found

    @cached_property
    def stored_beside(self) -> Mapping[int, tuple[tuple[int, ...], int]]:
        """Matrix product -> (operators beside which stored weights are gathered for it and gradients of weights that it
        makes are scattered, bytes of all that is resharded beside them in every microbatch): of its block in its pass
        of a microbatch, or outside of blocks itself."""
        of_product: dict[int, int] = {}
        given = [tensor.index for tensor in self.graph.tensors if tensor.kind in GIVEN_KINDS]
        contributions = {p.tensor: of for p, of in zip(self.graph.parameters, self.contributions, strict=True)}
        for weight in (*contributions, *given):
            reads = [(reader, self.products[reader][1]) for reader in self.graph.readers.get(weight, ())]
            used = [(product, weight) for reader, product in reads if self.layer_of[reader] != UPDATE_LAYER]
            made = [(self.graph.tensors[tensor].producer, tensor) for tensor in contributions.get(weight, ())]
            used += [(self.products[producer][0], tensor) for producer, tensor in made if producer is not None]
            for product, tensor in used:
                if product is not None:
                    of_product[product] = of_product.get(product, 0) + self.graph.tensors[tensor].bytes
        of_pass: dict[tuple[int, Phase], tuple[list[int], list[int]]] = {}
        for operator in self.graph.operators:
            if (block := block_number(operator.module)) is None or operator.phase is Phase.UPDATE:
                continue
            phases = [operator.phase] + [Phase.BACKWARD] * (operator.index in self.recomputed)
            for phase in phases:
                of_pass.setdefault((block, phase), ([], []))[0].append(operator.index)
            if operator.index in of_product:
                of_pass[block, operator.phase][1].append(operator.index)
        beside: dict[int, tuple[tuple[int, ...], int]] = {product: ((product,), n) for product, n in of_product.items()}
        for operators, products in of_pass.values():
            together = tuple(operators), sum(of_product[product] for product in products)
            beside |= dict.fromkeys(products, together)
        return beside


def assign_layers(
    graph: TrainingGraph,
    layer_of_forward: tuple[int, ...],
    recomputation: Recomputation | None = None,
    spec_constraints: Collection[SpecConstraint] = (),
    *,
    software: Software | None = None,
) -> LayeredGraph:
    """Extend a layering of the forward operators to the whole graph, mark what `software` computes as one product and
    in a lower precision, and fuse what it fuses.

    By default all layers are recomputed where `graph.rematerialization` is set, else nothing. OptionError where the
    model has nothing of the kind that `recomputation` names.
    """
    return next(assign_layers_each(graph, layer_of_forward, (recomputation,), spec_constraints, software=software))


def assign_layers_each(
    graph: TrainingGraph,
    layer_of_forward: tuple[int, ...],
    recomputations: Sequence[Recomputation | None],
    spec_constraints: Collection[SpecConstraint] = (),
    *,
    software: Software | None = None,
) -> Iterator[LayeredGraph]:
    """`assign_layers` with one kind of recomputation after the other, but those of several of which the model has
    nothing; what they share is computed once."""
    software = software or Software()
    graph = with_discovered_splits(graph)
    layer_of = []
    for operator in graph.operators:
        if operator.phase is Phase.FORWARD:
            layer_of.append(layer_of_forward[operator.index])
        elif operator.phase is Phase.BACKWARD:
            assert operator.forward is not None
            layer_of.append(layer_of_forward[operator.forward])
        else:
            layer_of.append(UPDATE_LAYER)
    move_sums(graph, layer_of)
    if software.plain_loop:
        graph = as_plain_pytorch(graph, fuses=software.fuses_pointwise)
    if software.joins_projections:
        graph = join_projections(graph)
    if software.low_precision:
        graph = in_low_precision(graph, software.low_precision, heads=software.lowers_head)
    unfused = graph = as_software_updates(graph, software)
    plain = software.plain_loop
    if software.fuses_pointwise:
        graph = fuse(graph, layer_of, named=plain)
    storage = _storage(graph, parts=plain)
    if plain and not software.fuses_pointwise:
        storage = _written_in_place(graph, layer_of, storage)
    num_layers = max(layer_of_forward) + 1
    operator_names = {o.name for o in graph.operators}
    constraints = _by_name({o.index: o.name for o in graph.operators}, spec_constraints)
    stored_names = {i: p.name for i, p in enumerate(graph.parameters) if p.name not in operator_names}
    uses, products, tables = _uses(graph), _products(graph), table_operators(graph, constraints)
    contributions = tuple(_contributions(graph, p.gradient) for p in graph.parameters)
    stored_constraints = _by_name(stored_names, spec_constraints)
    for recomputation in recomputations:
        if recomputation is None:
            recomputation = Recomputation.of_layers(range(num_layers) if graph.rematerialization else ())
        try:
            kept = hold(graph, layer_of, storage, recomputation, whole=software.recomputes_whole, plain=plain)
        except OptionError:
            if len(recomputations) == 1:
                raise
            continue
        in_kernel: dict[int, int | None] = {}
        if software.fuses_pointwise:
            read = unfused if plain else graph
            in_kernel = recomputed_in_kernel(read, layer_of, storage, kept.held, kept.recomputed, chains=plain)
        held = tuple(
            tuple(sorted({h for t in tensors if (h := in_kernel.get(t, t)) is not None})) for tensors in kept.held
        )
        yield LayeredGraph(
            graph=graph,
            num_layers=num_layers,
            layer_of=tuple(layer_of),
            storage=storage,
            recomputation=recomputation,
            recomputed=kept.recomputed,
            segment_of=kept.segment_of,
            waits=kept.waits,
            uses=uses,
            products=products,
            held=held,
            in_kernel=frozenset(in_kernel),
            returns_together=plain and software.fuses_pointwise,
            contributions=contributions,
            tables=tables,
            spec_constraints=constraints,
            stored_constraints=stored_constraints,
        )


def move_sums(graph: TrainingGraph, places: list[Place]) -> None:
    """Move each sum of two gradients to the first place that computes a term of it, where both are later ones.

    Autograd adds the gradients of a tensor where the tensor was made; here a stage sends their sum, not every term.
    `places` are the layers of operators, or (block, layer).
    """
    for operator in graph.operators:
        if operator.phase is Phase.BACKWARD and operator.kind == "aten.add.Tensor" and len(operator.inputs) == 2:
            producers = [graph.tensors[t].producer for t in operator.inputs]
            terms = [places[p] for p in producers if p is not None and graph.operators[p].phase is Phase.BACKWARD]
            if len(terms) == 2 and places[operator.index] < min(terms):
                places[operator.index] = min(terms)


def _by_name(
    names: Mapping[int, str], spec_constraints: Collection[SpecConstraint]
) -> dict[int, tuple[SpecConstraint, ...]]:
    """For each key in `names` whose name has constraints, those constraints."""
    constrained = {constraint.operator for constraint in spec_constraints}
    return {
        key: tuple(constraint for constraint in spec_constraints if constraint.operator == name)
        for key, name in names.items()
        if name in constrained
    }


def _uses(graph: TrainingGraph) -> tuple[int, ...]:
    uses = [0] * len(graph.operators)
    for operator in graph.operators:
        for tensor in operator.inputs:
            if (producer := graph.tensors[tensor].producer) is not None:
                uses[producer] += 1
    return tuple(uses)


def _products(graph: TrainingGraph) -> tuple[tuple[int | None, int | None], ...]:
    made: list[int | None] = []
    for operator in graph.operators:
        source = graph.tensors[operator.inputs[0]].producer if is_view(operator) else None
        made.append(operator.index if is_matrix_product(operator.kind) else None if source is None else made[source])
    read: list[int | None] = [None] * len(graph.operators)
    for operator in reversed(graph.operators):
        if is_matrix_product(operator.kind):
            read[operator.index] = operator.index
        elif is_view(operator):
            readers = (read[r] for r in graph.readers.get(operator.outputs[0], ()))
            read[operator.index] = next((r for r in readers if r is not None), None)
    return tuple(zip(made, read, strict=True))


def is_view(operator: Operator) -> bool:
    """True for an operator that moves no bytes: its output shares the memory of its first input."""
    return operator.bytes_accessed == 0 and operator.flops == 0 and len(operator.outputs) == 1 and bool(operator.inputs)


def _storage(graph: TrainingGraph, *, parts: bool) -> tuple[int, ...]:
    """For each tensor the one whose memory it shares; `parts`: those of a split are views of it, as in PyTorch."""
    storage = list(range(len(graph.tensors)))
    for operator in graph.operators:
        if is_view(operator) or (parts and counts.is_view(operator.kind) and operator.inputs):
            for tensor in operator.outputs:
                storage[tensor] = storage[operator.inputs[0]]
    return tuple(storage)


def _written_in_place(graph: TrainingGraph, layer_of: Sequence[int], storage: tuple[int, ...]) -> tuple[int, ...]:
    """`storage` where what a layer writes in place has the memory of what was there, which nothing else reads then."""
    last_read: dict[int, int] = {}
    """Storage tensor -> the last operator that reads it or a view of it, but to write into it."""
    for operator in graph.operators:
        for tensor in operator.inputs[operator.in_place :]:
            last_read[storage[tensor]] = operator.index
    instead: dict[int, int] = {}
    for operator in graph.operators:
        if not operator.in_place or operator.phase is Phase.UPDATE:
            continue
        source, made = storage[operator.inputs[0]], graph.tensors[operator.outputs[0]]
        there = graph.tensors[instead.get(source, source)]
        own = there.producer is not None and layer_of[there.producer] == layer_of[operator.index]
        fits = there.kind is TensorKind.VALUE and there.bytes >= made.bytes
        if own and fits and last_read.get(source, -1) <= operator.index:
            instead[made.index] = there.index
    return tuple(instead.get(base, base) for base in storage)


def _contributions(graph: TrainingGraph, gradient: int) -> tuple[int, ...]:
    """Backward tensors that are summed (update-phase adds) into `gradient`."""
    producer = graph.tensors[gradient].producer
    if producer is None or graph.operators[producer].phase is not Phase.UPDATE:
        return (gradient,)
    return tuple(t for read in graph.operators[producer].inputs for t in _contributions(graph, read))


def table_operators(graph: TrainingGraph, constrained: Collection[int]) -> frozenset[int]:
    """The forward operators that make tables: what the forward pass computes from numbers and vectors alone, as rotary
    tables and causal masks, and the buffers that it puts into zig-zag order.

    Neither data nor trained parameters reach a table. Frameworks compute it whole on every device, and so does a plan:
    its operators have one strategy, replicated. A device that reads a shard cuts it out at no cost. Without this rule a
    model that computes its rotary table in the first layer would tie that layer to every other one. Operators in
    `constrained`, for which the user names a spec, make none, nor does what is computed from them.
    """
    tables: set[int] = set()
    for operator in graph.operators:
        if (
            operator.phase is Phase.FORWARD
            and operator.index not in constrained
            and _makes_table(graph, operator, tables)
        ):
            tables.add(operator.index)
    return frozenset(tables)


def _makes_table(graph: TrainingGraph, operator: Operator, tables: Collection[int]) -> bool:
    outputs = [graph.tensors[t] for t in operator.outputs]
    if operator.kind in RANDOM or any(t.bytes > tuning.LARGEST_TABLE_BYTES for t in outputs):
        return False
    if not operator.inputs:
        # Larger tensors of one number, as an accumulator of zeros with a row for every token, are made in shards.
        return all(len(t.shape) <= 1 for t in outputs)
    for tensor in (graph.tensors[t] for t in operator.inputs):
        # Other buffers may be weights that are not trained.
        is_given = tensor.kind in GIVEN_KINDS and (len(tensor.shape) <= 1 or operator.kind == _ZIGZAG)
        if not is_given and tensor.producer not in tables:
            return False
    return True
