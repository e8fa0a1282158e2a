"""Strategies of an operator with their seconds, on one logical mesh. Equal operators are priced once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from alpa_explore.cluster import Device, LogicalMesh
from alpa_explore.cost.collectives import collective_seconds
from alpa_explore.cost.compute import Kernel, compute_seconds
from alpa_explore.cost.resharding import ReshardTable, reshard_table
from alpa_explore.graph import Operator, Tensor
from alpa_explore.graph.signature import operator_signature
from alpa_explore.sharding.reshard import StepKind
from alpa_explore.sharding.rules import splits_for
from alpa_explore.sharding.spec import PARTIAL, Spec, local_share
from alpa_explore.sharding.strategy import Strategy, enumerate_strategies
from alpa_explore.units import DTYPE_BYTES

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class PricedOperator:
    """The strategies of one operator; arrays have one row a strategy."""

    strategies: tuple[Strategy, ...]
    seconds: Floats
    """Compute of one device, shape [strategies]."""
    input_specs: tuple[Ints, ...]
    """For each input: position of its spec in the tensor's ReshardTable, shape [strategies]."""
    output_specs: tuple[Ints, ...]
    output_bytes: tuple[Floats, ...]
    """For each output: bytes on one device, shape [strategies]."""
    how: str
    """'rule', 'discovered' (by running the operator) or 'replicated'."""
    reason: str = ""
    """Why it is replicated."""


@dataclass(frozen=True, slots=True)
class CostModel:
    """Prices operators and reshardings on one squeezed mesh of one device kind. Holds only caches of pure functions."""

    device: Device
    mesh: LogicalMesh
    _operators: dict[object, PricedOperator] = field(default_factory=dict, repr=False, compare=False)
    _seen: dict[int, tuple[Operator, PricedOperator]] = field(default_factory=dict, repr=False, compare=False)
    """By identity, which spares the signature; holds the operator so that its identity stays its own."""
    _pairs: dict[tuple[int, int, int], tuple[Floats, Ints, Ints]] = field(
        default_factory=dict, repr=False, compare=False
    )
    """Likewise."""
    _specs: dict[tuple[int, bool], tuple[Ints, Floats]] = field(default_factory=dict, repr=False, compare=False)
    _reshards: dict[tuple[tuple[int, ...], int], ReshardTable] = field(default_factory=dict, repr=False, compare=False)

    def reshard(self, tensor: Tensor) -> ReshardTable:
        """Costs between all specs of `tensor`."""
        key = (tensor.shape, DTYPE_BYTES[tensor.dtype])
        if key not in self._reshards:
            self._reshards[key] = reshard_table(tensor.shape, tensor.bytes, self.mesh)
        return self._reshards[key]

    def resharding(self, tensor: Tensor, sources: Ints, targets: Ints) -> Floats:
        """Seconds from each of `sources` to each of `targets` (positions of specs), [sources, targets]."""
        table = self.reshard(tensor)
        key = id(table), id(sources), id(targets)
        if key not in self._pairs:
            seconds = table.seconds[sources[:, None], targets[None, :]]
            seconds.setflags(write=False)
            self._pairs[key] = seconds, sources, targets
        return self._pairs[key][0]

    def specs(self, tensor: Tensor, *, partial: bool) -> tuple[Ints, Floats]:
        """Positions of the legal specs of a tensor, and the bytes of one device under each."""
        table = self.reshard(tensor)
        key = id(table), partial
        if key not in self._specs:
            keep = [i for i, spec in enumerate(table.specs) if partial or PARTIAL not in spec]
            share = [local_share(table.specs[i], self.mesh.shape) for i in keep]
            self._specs[key] = np.array(keep, dtype=np.int64), np.array(share) * tensor.bytes
        return self._specs[key]

    def operator(self, operator: Operator, tensors: Sequence[Tensor]) -> PricedOperator:
        """Strategies of `operator` with their seconds."""
        if id(operator) not in self._seen:
            key = operator_signature(operator, tensors)
            if key not in self._operators:
                self._operators[key] = self._price(operator, tensors)
            self._seen[id(operator)] = operator, self._operators[key]
        return self._seen[id(operator)][1]

    def kernel(self, operator: Operator, tensors: Sequence[Tensor], strategy: Strategy) -> Kernel:
        """What one device does of `operator` under one of its strategies."""
        return self._kernel(operator, tensors, strategy, splits_for(operator, tensors).heavy)

    def _kernel(self, operator: Operator, tensors: Sequence[Tensor], strategy: Strategy, heavy: bool) -> Kernel:
        own = [tensors[t] for t in (*operator.inputs, *operator.outputs)]
        whole = sum(t.bytes for t in own) or 1
        local = sum(
            t.bytes * local_share(spec, self.mesh.shape)
            for t, spec in zip(own, (*strategy.inputs, *strategy.outputs), strict=True)
        )
        return Kernel(
            flops=operator.flops * strategy.work_share, bytes_accessed=operator.bytes_accessed * local / whole,
            dtype=tensors[(*operator.outputs, *operator.inputs)[0]].dtype, matrix=heavy,
        )  # fmt: skip

    def _price(self, operator: Operator, tensors: Sequence[Tensor]) -> PricedOperator:
        inputs = [tensors[t] for t in operator.inputs]
        outputs = [tensors[t] for t in operator.outputs]
        coverage = splits_for(operator, tensors)
        strategies = enumerate_strategies(
            coverage.splits, [t.shape for t in inputs], [t.shape for t in outputs], self.mesh.shape,
            replicable=not coverage.heavy,
        )  # fmt: skip

        def seconds(strategy: Strategy) -> float:
            sync = sum(
                collective_seconds(StepKind.ALL_REDUCE, sent, size, bandwidth, latency)
                for sent, size, bandwidth, latency in zip(
                    strategy.sync_bytes, self.mesh.shape, self.mesh.bandwidth, self.mesh.latency_seconds, strict=True
                )
                if sent
            )
            return sync + compute_seconds(self.device, self._kernel(operator, tensors, strategy, coverage.heavy))

        def positions(tensor: Tensor, specs: Sequence[Spec]) -> Ints:
            index = self.reshard(tensor).index
            return np.array([index[s] for s in specs], dtype=np.int64)

        return PricedOperator(
            strategies=strategies,
            seconds=np.array([seconds(s) for s in strategies]),
            input_specs=tuple(positions(t, [s.inputs[i] for s in strategies]) for i, t in enumerate(inputs)),
            output_specs=tuple(positions(t, [s.outputs[o] for s in strategies]) for o, t in enumerate(outputs)),
            output_bytes=tuple(
                np.array([t.bytes * local_share(s.outputs[o], self.mesh.shape) for s in strategies])
                for o, t in enumerate(outputs)
            ),
            how=coverage.how,
            reason=coverage.reason,
        )
