"""Strategies of an operator with their seconds, on one logical mesh. Equal operators are priced once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from alpa_explore.cluster import Device, LogicalMesh
from alpa_explore.cost.collectives import collective_seconds
from alpa_explore.cost.compute import compute_seconds
from alpa_explore.cost.resharding import ReshardTable, reshard_table
from alpa_explore.graph import Operator, Tensor
from alpa_explore.graph.signature import operator_signature
from alpa_explore.sharding.reshard import StepKind
from alpa_explore.sharding.rules import splits_for
from alpa_explore.sharding.spec import Spec, local_share
from alpa_explore.sharding.strategy import Strategy, enumerate_strategies
from alpa_explore.units import DTYPE_BYTES


@dataclass(frozen=True, slots=True, eq=False)
class PricedOperator:
    """The strategies of one operator; arrays have one row a strategy."""

    strategies: tuple[Strategy, ...]
    seconds: NDArray[np.float64]
    """Compute of one device, shape [strategies]."""
    input_specs: tuple[NDArray[np.int64], ...]
    """For each input: position of its spec in the tensor's ReshardTable, shape [strategies]."""
    output_specs: tuple[NDArray[np.int64], ...]
    output_bytes: tuple[NDArray[np.float64], ...]
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
    _reshards: dict[tuple[tuple[int, ...], int], ReshardTable] = field(default_factory=dict, repr=False, compare=False)

    def reshard(self, tensor: Tensor) -> ReshardTable:
        """Costs between all specs of `tensor`."""
        key = (tensor.shape, DTYPE_BYTES[tensor.dtype])
        if key not in self._reshards:
            self._reshards[key] = reshard_table(tensor.shape, tensor.bytes, self.mesh)
        return self._reshards[key]

    def operator(self, operator: Operator, tensors: Sequence[Tensor]) -> PricedOperator:
        """Strategies of `operator` with their seconds."""
        key = operator_signature(operator, tensors)
        if key not in self._operators:
            self._operators[key] = self._price(operator, tensors)
        return self._operators[key]

    def _price(self, operator: Operator, tensors: Sequence[Tensor]) -> PricedOperator:
        inputs = [tensors[t] for t in operator.inputs]
        outputs = [tensors[t] for t in operator.outputs]
        coverage = splits_for(operator, tensors)
        strategies = enumerate_strategies(
            coverage.splits, [t.shape for t in inputs], [t.shape for t in outputs], self.mesh.shape,
            replicable=not coverage.heavy,
        )  # fmt: skip
        whole = sum(t.bytes for t in (*inputs, *outputs)) or 1
        dtype = (outputs or inputs)[0].dtype

        def seconds(strategy: Strategy) -> float:
            local = sum(
                t.bytes * local_share(spec, self.mesh.shape)
                for t, spec in zip((*inputs, *outputs), (*strategy.inputs, *strategy.outputs), strict=True)
            )
            sync = sum(
                collective_seconds(StepKind.ALL_REDUCE, sent, size, bandwidth, latency)
                for sent, size, bandwidth, latency in zip(
                    strategy.sync_bytes, self.mesh.shape, self.mesh.bandwidth, self.mesh.latency_seconds, strict=True
                )
                if sent
            )
            return sync + compute_seconds(
                self.device, flops=operator.flops * strategy.work_share,
                bytes_accessed=operator.bytes_accessed * local / whole, dtype=dtype, matrix=coverage.heavy,
            )  # fmt: skip

        def positions(tensor: Tensor, specs: Sequence[Spec]) -> NDArray[np.int64]:
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
