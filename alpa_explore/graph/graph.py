"""The training graph: forward, backward and update of one microbatch, as plain frozen values."""

from collections import defaultdict
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256

from alpa_explore.graph.operator import Operator, Phase, operator_signature, tensor_refs
from alpa_explore.graph.tensor import Tensor, TensorKind


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """A trainable parameter: the tensors it is read and updated through, and what its optimizer keeps."""

    name: str
    tensor: int
    gradient: int
    """The tensor that the update operator reads."""
    update: int
    """Index of the update operator."""
    state_bytes_per_element: float
    """Optimizer state (moments, fp32 master copy) beside the weight and its gradient."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """A buffer, or a frozen weight, that the forward pass writes."""

    name: str
    tensor: int | None = None
    """The tensor with its old value, where the new one is part of the graph."""
    value: int | None = None
    """The tensor with its new value, which a forward operator makes; None where the graph does not have it."""


@dataclass(frozen=True, kw_only=True)
class TrainingGraph:
    """One training step of one microbatch.

    `operators` is in topological order: forward operators first, then backward, then update. A graph is never changed
    after it is made; two graphs are equal when their `content_key` is.
    """

    name: str
    tensors: tuple[Tensor, ...]
    operators: tuple[Operator, ...]
    inputs: tuple[int, ...]
    parameters: tuple[Parameter, ...]
    loss: int
    """The tensor that holds the scalar loss."""
    samples: int
    """Samples in one microbatch (first dim of the first example input)."""
    tokens: int
    """Tokens in one microbatch: elements of the first integer input of rank 2, else `samples`."""
    precision: str
    """'float16', 'bfloat16' or 'float32': the dtype in which weights are read."""
    optimizer: str
    rematerialization: bool
    """True: only layer inputs are held for the backward pass, which runs each layer's forward again."""
    recipe: str | None = None
    """How to rebuild the model: a catalogue name or 'package.module:function'; None for a model made in a notebook."""
    zigzag: int = 1
    """Devices for which its sequences are in zig-zag order (`sharding.zigzag`); the recipe makes the natural order."""
    checkpoints: tuple[tuple[str, ...], ...] = ()
    """The regions that the model itself recomputes (`torch.utils.checkpoint`): each by the paths of its modules."""
    warnings: tuple[str, ...] = ()
    written: tuple[Written, ...] = ()

    @cached_property
    def forward_operators(self) -> tuple[Operator, ...]:
        """The forward operators, in order; layering clusters these."""
        return tuple(o for o in self.operators if o.phase is Phase.FORWARD)

    @cached_property
    def readers(self) -> dict[int, tuple[int, ...]]:
        """Tensor index -> indices of the operators that read it, ascending, without repeats."""
        readers: dict[int, list[int]] = defaultdict(list)
        for operator in self.operators:
            for tensor in dict.fromkeys(operator.inputs):
                readers[tensor].append(operator.index)
        return {tensor: tuple(ops) for tensor, ops in readers.items()}

    @cached_property
    def signatures(self) -> tuple[object, ...]:
        """The signature of each operator (`operator_signature`); equal operators share one object, so it can be
        compared by identity."""
        unique: dict[object, object] = {}
        signatures = (operator_signature(o, self.tensors) for o in self.operators)
        return tuple(unique.setdefault(signature, signature) for signature in signatures)

    @cached_property
    def parameter_count(self) -> int:
        """Number of trainable elements; a tied weight is counted once."""
        return sum(self.tensors[p.tensor].elements for p in self.parameters)

    @cached_property
    def model_flops(self) -> int:
        """FLOPs of forward and backward of one microbatch, recomputation not counted."""
        return sum(o.flops for o in self.operators if o.phase is not Phase.UPDATE)

    @cached_property
    def content_key(self) -> str:
        """sha256 of everything a plan depends on; names of tensors and source lines included."""
        body = (
            self.tensors,
            self.operators,
            self.inputs,
            self.parameters,
            self.loss,
            self.samples,
            self.tokens,
            self.precision,
            self.optimizer,
            self.rematerialization,
            *((self.checkpoints,) if self.checkpoints else ()),
            *((self.written,) if self.written else ()),
        )
        return sha256(repr(body).encode()).hexdigest()

    def from_inputs(self, tensor: int) -> bool:
        """Whether a tensor is computed from example inputs, not from constants or from the shape of inputs alone, as
        positions are."""
        waiting, seen = [tensor], {tensor}
        while waiting:
            found = self.tensors[waiting.pop()]
            if found.kind is TensorKind.INPUT:
                return True
            read = () if found.producer is None else self.operators[found.producer].inputs
            waiting += [t for t in read if t not in seen]
            seen |= set(read)
        return False

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TrainingGraph) and self.content_key == other.content_key

    def __hash__(self) -> int:
        return hash(self.content_key)

    def __repr__(self) -> str:
        # The generated repr of thousands of operators would fill a notebook.
        return (
            f"TrainingGraph({self.name!r}, {len(self.operators)} operators, {self.parameter_count:,} parameters, "
            f"{self.samples} samples a microbatch, {self.precision})"
        )


_ORDER = {Phase.FORWARD: 0, Phase.BACKWARD: 1, Phase.UPDATE: 2}


def verify(graph: TrainingGraph) -> TrainingGraph:
    """Return `graph` if it is well formed; AssertionError (a bug of this library, never the user's fault) names the
    invariant that does not hold."""
    available: set[int] = {t.index for t in graph.tensors if t.producer is None}
    phase = 0
    for position, tensor in enumerate(graph.tensors):
        assert tensor.index == position, f"tensor {tensor.name} has index {tensor.index} at position {position}"
    for place, operator in enumerate(graph.operators):
        where = f"operator {place} ({operator.name})"
        assert operator.index == place, f"{where} has index {operator.index}"
        assert _ORDER[operator.phase] >= phase, f"{where}: phases are out of order"
        phase = _ORDER[operator.phase]
        refs = tensor_refs(operator.values)
        assert refs == operator.inputs, f"{where}: inputs {operator.inputs} are not those of its arguments {refs}"
        for read in operator.inputs:
            assert read in available, f"{where} reads tensor {read} before it is produced"
        for written in operator.outputs:
            assert graph.tensors[written].producer == place, f"{where}: tensor {written} names another producer"
            available.add(written)
        if operator.phase is Phase.BACKWARD:
            assert operator.forward is not None, f"{where}: a backward operator without its forward operator"
            assert graph.operators[operator.forward].phase is Phase.FORWARD, f"{where}: tied to a non-forward operator"
            for read in operator.inputs:
                producer = graph.tensors[read].producer
                gradient_of = operator.forward if producer is None else graph.operators[producer].forward
                # So that, wherever forward operators are cut into stages, no gradient flows to a later stage.
                assert gradient_of is None or gradient_of >= operator.forward, (
                    f"{where} reads a gradient from before its place"
                )
        assert min(operator.flops, operator.bytes_accessed) >= 0, f"{where}: negative counts"
    for parameter in graph.parameters:
        update = graph.operators[parameter.update]
        assert update.phase is Phase.UPDATE, f"parameter {parameter.name}: update is a {update.phase.value} operator"
        assert update.inputs[:2] == (parameter.tensor, parameter.gradient), f"parameter {parameter.name}: update inputs"
    for one in graph.written:
        if one.tensor is not None and one.value is not None:
            old, new = graph.tensors[one.tensor], graph.tensors[one.value]
            assert old.producer is None, f"{one.name}: the old value is made by an operator"
            assert new.producer is not None, f"{one.name}: no operator makes the new value"
            assert graph.operators[new.producer].phase is Phase.FORWARD, f"{one.name}: not made in the forward pass"
            assert (old.shape, old.dtype) == (new.shape, new.dtype), f"{one.name}: the new value has another form"
    assert graph.loss in available, "no operator produces the loss"
    return graph
