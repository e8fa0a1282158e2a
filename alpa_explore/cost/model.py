"""The cost model: strategies of operators and their seconds on one logical mesh. Equal operators are priced once."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from alpa_explore.cluster import Device, LogicalMesh
from alpa_explore.cluster.precisions import RECIPES
from alpa_explore.cost.collectives import axis_seconds, exposed_seconds, launched
from alpa_explore.cost.compute import adding_seconds, kernels_seconds
from alpa_explore.cost.group_collectives import rows_seconds
from alpa_explore.cost.kernels import (
    NO_SIZES,
    Kernel,
    KernelKind,
    KernelName,
    Sizes,
    cast_elements,
    kernel_dtype,
    kernel_kind,
    local_shapes,
    local_sizes,
    product_sizes,
    routed_bytes,
    sizes_in_window,
)
from alpa_explore.cost.measured import can_run, is_measured, kernel_name
from alpa_explore.cost.resharding import UNREACHABLE, ReshardTable, reshard_table
from alpa_explore.graph import Operator, Tensor, TensorKind, TrainingGraph
from alpa_explore.graph.counts import GATHERS, ROUTED, packet
from alpa_explore.graph.counts import steps as steps_in_sequence
from alpa_explore.graph.loops import SCAN
from alpa_explore.numerics.arrays import Floats, Ints
from alpa_explore.sharding.rules.attention import CONTEXT
from alpa_explore.sharding.rules.experts import DIVIDE_EXPERTS
from alpa_explore.sharding.spec import PARTIAL, Spec, local_share
from alpa_explore.sharding.splits import splits_for
from alpa_explore.sharding.strategy import Exchange, Split, Strategy, enumerate_strategies
from alpa_explore.units import DTYPE_BYTES


@dataclass(frozen=True, slots=True, eq=False)
class PricedOperator:
    """The strategies of one operator with their costs; arrays have one entry per strategy."""

    strategies: tuple[Strategy, ...]
    seconds: Floats
    """Of one device: the kernel, the casts that it needs in a lower precision, and the collectives inside the operator
    (c_v + d_v of Eq. 1). Shape [strategies]."""
    input_specs: tuple[Ints, ...]
    """For each input: index of its spec in the tensor's ReshardTable, shape [strategies]."""
    output_specs: tuple[Ints, ...]
    """The same for each output."""
    output_bytes: tuple[Floats, ...]
    """For each output: bytes on one device, shape [strategies]."""
    how: str
    """'rule', 'discovered' (by running the operator) or 'replicated', as `sharding.splits` reports it."""
    reason: str = ""
    """Why it is replicated; empty otherwise."""
    launching: Floats | None = None
    """Host seconds to launch the collectives inside the operator, shape [strategies]; None where there are none."""

    def only(self, places: Sequence[int]) -> PricedOperator:
        """The operator with the strategies at these places."""
        return replace(
            self,
            strategies=tuple(self.strategies[i] for i in places),
            seconds=_read_only(self.seconds[places]),
            input_specs=tuple(specs[places] for specs in self.input_specs),
            output_specs=tuple(specs[places] for specs in self.output_specs),
            output_bytes=tuple(_read_only(sizes[places]) for sizes in self.output_bytes),
            launching=None if self.launching is None else self.launching[places],
        )


@dataclass(frozen=True, slots=True)
class CostModel:
    """Prices operators and reshardings on one squeezed mesh of equal devices. Its private fields are memos of pure
    functions."""

    device: Device
    mesh: LogicalMesh
    _operators: dict[object, PricedOperator] = field(default_factory=dict, repr=False, compare=False)
    _seen: dict[int, tuple[object, PricedOperator]] = field(default_factory=dict, repr=False, compare=False)
    """By `id` of the signature, which avoids hashing it; the value keeps the signature alive, so that its id is not
    reused."""
    _least: dict[int, float] = field(default_factory=dict, repr=False, compare=False)
    """By the id of a signature in `_seen`."""
    _whole: dict[int, tuple[PricedOperator, PricedOperator]] = field(default_factory=dict, repr=False, compare=False)
    """By the id of the first, which the value keeps alive."""
    _pairs: dict[object, tuple[Floats, Ints, Ints]] = field(default_factory=dict, repr=False, compare=False)
    """By the ids of two index arrays of one tensor, and what is asked of them; the value keeps them alive."""
    _specs: dict[tuple[int, bool], tuple[Ints, Floats]] = field(default_factory=dict, repr=False, compare=False)
    _adding: dict[int, Floats] = field(default_factory=dict, repr=False, compare=False)
    """By the id of an index array in `_specs`."""
    _reshards: dict[tuple[tuple[int, ...], int, bool], ReshardTable] = field(
        default_factory=dict, repr=False, compare=False
    )

    def reshard(self, tensor: Tensor) -> ReshardTable:
        """Costs between all specs of `tensor`. A single number, as the loss, costs nothing in the setting of real
        software, which sums it over replicas once an iteration, for its log."""
        fixed = tensor.kind is TensorKind.ROUTED
        key = (tensor.shape, DTYPE_BYTES[tensor.dtype], fixed)
        if key not in self._reshards:
            mesh = self.mesh
            if tensor.elements == 1 and mesh.groups:
                axes = len(mesh.shape)
                mesh = replace(
                    mesh,
                    groups=(),
                    bandwidth=(math.inf,) * axes,
                    latency_seconds=(0.0,) * axes,
                    call_seconds=(0.0,) * axes if mesh.call_seconds else (),
                )
            self._reshards[key] = reshard_table(tensor.shape, tensor.bytes, mesh, fixed=fixed)
        return self._reshards[key]

    def without_memo_of_pairs(self) -> CostModel:
        """The same model, whose memos of pairs of index arrays are empty: for arrays that are not used again."""
        return replace(self, _pairs={})

    def resharding(self, tensor: Tensor, sources: Ints, targets: Ints) -> Floats:
        """Seconds from each of `sources` to each of `targets`, shape [sources, targets].

        Both are arrays of spec indices that `operator` or `specs` returned: results are kept by the identity of the
        arrays.
        """
        key = id(sources), id(targets)
        if key not in self._pairs:
            seconds = self.reshard(tensor).between(sources, targets)
            self._pairs[key] = _read_only(seconds), sources, targets
        return self._pairs[key][0]

    def stored_resharding(self, tensor: Tensor, sources: Ints, targets: Ints, together: float = 0.0) -> Floats:
        """`resharding` of a stored weight, its gradient or its update: with others in buckets of the software, or with
        those of its block, which have so many elements `together`."""
        bucket: float = self.device.software.bucket_bytes
        if not bucket:
            return self.resharding(tensor, sources, targets)
        if together:
            bucket = together * DTYPE_BYTES[tensor.dtype]
        key = "stored", id(sources), id(targets), bucket
        if key not in self._pairs:
            seconds = self.reshard(tensor).in_buckets(bucket, together > 0, sources, targets)
            self._pairs[key] = _read_only(seconds), sources, targets
        return self._pairs[key][0]

    def as_summed(self, gradient: Tensor) -> Tensor:
        """A gradient in the elements in which replicas sum it once an iteration."""
        own, wide = DTYPE_BYTES[gradient.dtype], self.device.software.sync_bytes
        if wide in (0, own):
            return gradient
        return replace(gradient, dtype=next((d for d, each in DTYPE_BYTES.items() if each == wide), gradient.dtype))

    def beside_product(self, tensor: Tensor, sources: Ints, targets: Ints, product_seconds: float) -> Floats:
        """`resharding` beside a matrix product: without the share of gathers and reduce-scatters that the software
        hides behind it, as far as it is long enough."""
        key = "beside", id(sources), id(targets), product_seconds
        if key not in self._pairs:
            share = self.device.software.tensor_overlap
            summed = self.reshard(tensor).all_reduce_seconds(sources, targets)
            seconds = self.resharding(tensor, sources, targets)
            hidden = np.where(seconds < UNREACHABLE, share * np.minimum(seconds - summed, product_seconds), 0.0)
            self._pairs[key] = _read_only(seconds - hidden), sources, targets
        return self._pairs[key][0]

    def launching(self, tensor: Tensor, sources: Ints, targets: Ints) -> Floats:
        """Host seconds to launch the collectives from each of `sources` to each of `targets`; as `resharding`."""
        key = "calls", id(sources), id(targets)
        if key not in self._pairs:
            seconds = self.reshard(tensor).calls(sources, targets)
            self._pairs[key] = _read_only(seconds), sources, targets
        return self._pairs[key][0]

    def specs(self, tensor: Tensor, *, partial: bool) -> tuple[Ints, Floats]:
        """Indices of the legal specs of a tensor, and its bytes on one device under each."""
        table = self.reshard(tensor)
        key = id(table), partial
        if key not in self._specs:
            keep = np.array([i for i, spec in enumerate(table.specs) if partial or PARTIAL not in spec], dtype=np.int64)
            self._specs[key] = keep, _read_only(table.shares[keep] * tensor.bytes)
        return self._specs[key]

    def operator(self, graph: TrainingGraph, index: int) -> PricedOperator:
        """Strategies of an operator of `graph` with their seconds."""
        signature = graph.signatures[index]
        if id(signature) not in self._seen:
            if signature not in self._operators:
                self._operators[signature] = self._price(graph.operators[index], graph.tensors)
            self._seen[id(signature)] = signature, self._operators[signature]
        return self._seen[id(signature)][1]

    def least_seconds(self, graph: TrainingGraph, index: int) -> float:
        """Seconds of the fastest strategy of an operator."""
        least = self._least.get(id(graph.signatures[index]))
        if least is None:
            least = self._least[id(graph.signatures[index])] = float(self.operator(graph, index).seconds.min())
        return least

    def whole(self, priced: PricedOperator) -> PricedOperator:
        """An operator of `operator` with the one strategy that divides nothing."""
        if id(priced) not in self._whole:
            place = next(i for i, s in enumerate(priced.strategies) if all(factor == "-" for factor in s.factors))
            self._whole[id(priced)] = priced, priced.only([place])
        return self._whole[id(priced)][1]

    def kernel(self, operator: Operator, tensors: Sequence[Tensor], strategy: Strategy) -> Kernel:
        """The work of one device for `operator` under one of its strategies."""
        inputs, outputs = ([tensors[t] for t in side] for side in (operator.inputs, operator.outputs))
        specs = (*strategy.inputs, *strategy.outputs)
        moved = _moved_whole(operator, inputs, outputs)
        local = sum(t.bytes * local_share(s, self.mesh.shape) for t, s in zip(moved, specs[-len(moved) :], strict=True))
        heavy = splits_for(operator, tensors).heavy
        sizes = local_sizes(operator, inputs, outputs, strategy, self.mesh.shape) if heavy else NO_SIZES
        name = kernel_name(self.device, operator, inputs, outputs, strategy, self.mesh.shape)
        return _kernel(operator, inputs, outputs, heavy, (strategy.work_share, local, sizes, name))

    def exchange_seconds(self, operator: Operator, tensors: Sequence[Tensor], strategy: Strategy) -> tuple[float, ...]:
        """For each mesh axis the seconds of the collectives inside an operator that its own computing does not hide:
        the part of `PricedOperator.seconds` that is communication."""
        if not any(strategy.exchanges):
            return (0.0,) * len(self.mesh.shape)
        computing = float(kernels_seconds(self.device, [self.kernel(operator, tensors, strategy)])[0])
        return self._exchanging(strategy, computing)

    @property
    def copies(self) -> int:
        """Copies of the model of which a device holds a stage."""
        return 1 if self.device.mirror is None else 2

    def mirrored_seconds(self, gradient: Tensor, places: Ints) -> Floats:
        """Seconds to sum a gradient with the device that holds the same weights, under each of these specs: both send
        what they have. 0 where there is one copy."""
        mirror = self.device.mirror
        if mirror is None:
            return np.zeros(len(places))
        local = self.reshard(gradient).shares[places] * gradient.bytes
        bucket = self.device.software.bucket_bytes
        collectives = local / bucket if bucket else 1.0
        return collectives * mirror.latency_seconds + local / mirror.bandwidth

    def adding_seconds(self, tensor: Tensor) -> Floats:
        """Seconds to add a gradient to an accumulated one, under each of its legal specs, shape [specs]."""
        places, local = self.specs(tensor, partial=True)
        if id(places) not in self._adding:
            self._adding[id(places)] = _read_only(adding_seconds(self.device, local, DTYPE_BYTES[tensor.dtype]))
        return self._adding[id(places)]

    def _price(self, operator: Operator, tensors: Sequence[Tensor]) -> PricedOperator:
        inputs = [tensors[t] for t in operator.inputs]
        outputs = [tensors[t] for t in operator.outputs]
        coverage = splits_for(operator, tensors)
        strategies = enumerate_strategies(
            self._offered(coverage.splits, outputs),
            [t.shape for t in inputs],
            [t.shape for t in outputs],
            self.mesh.shape,
            replicable=not coverage.heavy,
        )
        if packet(operator.kind) in ROUTED:
            strategies = tuple(self._with_load(strategy) for strategy in strategies)

        def positions(tensor: Tensor, specs: Sequence[Spec]) -> Ints:
            index = self.reshard(tensor).index
            return np.array([index[s] for s in specs], dtype=np.int64)

        read = [positions(t, [s.inputs[i] for s in strategies]) for i, t in enumerate(inputs)]
        made = [positions(t, [s.outputs[o] for s in strategies]) for o, t in enumerate(outputs)]
        sizes = [
            _read_only(t.bytes * self.reshard(t).shares[places])
            for t, places in zip((*inputs, *outputs), (*read, *made), strict=True)
        ]
        moved = len(_moved_whole(operator, inputs, outputs))
        local = sum(sizes[-moved:], np.zeros(len(strategies))).tolist()
        held = [
            _read_only(size * [self._load(s) for s in strategies]) if t.kind is TensorKind.ROUTED else size
            for t, size in zip(outputs, sizes[len(inputs) :], strict=True)
        ]
        if operator.unfused is not None and held:  # with the last output, which only the backward pass reads
            held[-1] = _read_only(held[-1] + [operator.unfused.kept_bytes * s.work_share for s in strategies])
        heavy, shape = coverage.heavy, self.mesh.shape
        works = [
            (
                s.work_share,
                bytes_held,
                local_sizes(operator, inputs, outputs, s, shape) if heavy else NO_SIZES,
                kernel_name(self.device, operator, inputs, outputs, s, shape),
            )
            for s, bytes_held in zip(strategies, local, strict=True)
        ]
        # Many strategies give a device the same work.
        distinct = {work: place for place, work in enumerate(dict.fromkeys(works))}
        kernels = [_kernel(operator, inputs, outputs, heavy, work) for work in distinct]
        kernel_seconds = kernels_seconds(self.device, kernels)[[distinct[work] for work in works]]
        seconds = kernel_seconds + self._exchange_seconds(strategies, kernel_seconds)
        for others in zip(*(self.others(operator, tensors, strategy) for strategy in strategies), strict=True):
            unlike = {kernel: place for place, kernel in enumerate(dict.fromkeys(others))}
            seconds += kernels_seconds(self.device, list(unlike))[[unlike[kernel] for kernel in others]]
        runs = np.array([can_run(self.device, kernel) for kernel in kernels])[[distinct[work] for work in works]]
        if runs.any():  # else none is better than another
            seconds = np.where(runs, seconds, np.inf)
        kept = [place for place in _fastest(strategies, seconds) if seconds[place] < np.inf]
        priced = PricedOperator(
            strategies=strategies,
            seconds=_read_only(seconds),
            input_specs=tuple(read),
            output_specs=tuple(made),
            output_bytes=tuple(held),
            how=coverage.how,
            reason=coverage.reason,
        )
        priced = priced if len(kept) == len(strategies) else priced.only(kept)
        return replace(priced, launching=self._launching(operator, priced.strategies))

    def others(self, operator: Operator, tensors: Sequence[Tensor], strategy: Strategy) -> tuple[Kernel, ...]:
        """The kernels that an operator needs beside its own: its share of the casts of what it reads, where it computes
        in a lower precision; what moves rows to and from routed experts. As many for every strategy."""
        low, routed, unfused = operator.low, packet(operator.kind) in ROUTED, operator.unfused
        if low is None and not routed and unfused is None:
            return ()
        inputs, outputs = ([tensors[t] for t in side] for side in (operator.inputs, operator.outputs))
        if unfused is not None and (low is None or routed):
            beside = not is_measured(self.device, self.kernel(operator, tensors, strategy))  # else it was timed as well
            moved = unfused.moved_bytes * strategy.work_share * beside
            return (Kernel(flops=float(moved > 0), bytes_accessed=moved, dtype=outputs[0].dtype, matrix=False),)
        local = local_shapes(inputs, outputs, strategy, self.mesh.shape)
        sizes, load, found = product_sizes(operator, *local), self._load(strategy) if routed else 1.0, []
        if low is not None:
            dtype = inputs[low.operand].dtype
            casts = 2 * low.share if routed else low.share  # of experts the operands of both products
            each = RECIPES[low.recipe].cast_bytes(DTYPE_BYTES[dtype])
            moved = each * cast_elements(operator, *local, sizes) * low.share * load
            found.append(Kernel(flops=1.0, bytes_accessed=moved, dtype=dtype, matrix=False, steps=casts))
        if routed:
            _, moved = routed_bytes(operator, inputs, strategy.work_share, sizes)
            found.append(Kernel(flops=1.0, bytes_accessed=moved, dtype=outputs[0].dtype, matrix=False))
        return tuple(found)

    def _offered(self, splits: Sequence[Split], outputs: Sequence[Tensor]) -> Sequence[Split]:
        """The splits of an operator that the software can run."""
        if not any(s.inner_of or s.factor in CONTEXT for s in splits):
            return splits
        software = self.device.software
        least, names = software.context_positions, software.context_factors.split() or CONTEXT

        def offered(split: Split) -> bool:
            if split.inner_of:
                return 0 < least <= split.size
            return split.factor not in CONTEXT or (split.factor in names and 0 < least <= outputs[0].shape[2])

        return [s for s in splits if offered(s)]

    def _load(self, strategy: Strategy) -> float:
        """Rows of the busiest device over those of an even load, for routed experts."""
        if self.device.expert_capacity:
            return self.device.expert_capacity
        return self.device.expert_imbalance if DIVIDE_EXPERTS & set(strategy.factors) else 1.0

    def _with_load(self, strategy: Strategy) -> Strategy:
        """A strategy of routed experts with the work of the busiest device, and what it exchanges."""
        load = self._load(strategy)
        exchanges = tuple(tuple(replace(e, bytes=int(e.bytes * load)) for e in of) for of in strategy.exchanges)
        return replace(strategy, work_share=strategy.work_share * load, exchanges=exchanges)

    def _launching(self, operator: Operator, strategies: Sequence[Strategy]) -> Floats | None:
        calls, sizes = self.mesh.call_seconds, self.mesh.shape
        routing = self.mesh.expert_seconds if packet(operator.kind) in ROUTED else 0.0
        if not routing and (not calls or not any(any(s.exchanges) for s in strategies)):
            return None
        return np.array(
            [
                routing
                + sum(
                    call * sum(launched(exchange.kind, size) for exchange in exchanges if not exchange.is_number)
                    for call, size, exchanges in zip(calls, sizes, s.exchanges, strict=False)
                )
                for s in strategies
            ]
        )

    def _exchange_seconds(self, strategies: Sequence[Strategy], kernel_seconds: Floats) -> Floats:
        """Seconds of the collectives inside the operator that its own computing does not hide, shape [strategies]."""
        pairs = zip(strategies, kernel_seconds.tolist(), strict=True)
        return np.array([sum(self._exchanging(s, own)) if any(s.exchanges) else 0.0 for s, own in pairs])

    def _exchanging(self, strategy: Strategy, computing: float) -> tuple[float, ...]:
        """Those of one strategy whose kernel takes `computing` seconds, for each mesh axis."""
        seconds = []
        for axis, exchanges in enumerate(strategy.exchanges):
            alone = beside = 0.0
            for exchange in exchanges:
                taken = 0.0 if exchange.is_number else self._taken(exchange, axis, strategy)
                if exchange.beside:
                    beside += taken
                else:
                    alone += taken
            seconds.append(alone + exposed_seconds(beside, computing, self.mesh.shape[axis]))
        return tuple(seconds)

    def _taken(self, exchange: Exchange, axis: int, strategy: Strategy) -> float:
        """Seconds of one exchange; of the rows of experts a share runs beside other work."""
        software, sent = self.device.software, self.sent_bytes(exchange, strategy)
        if not exchange.copies:
            return axis_seconds(exchange.kind, sent, self.mesh, axis)
        if self.mesh.groups:
            copies = exchange.copies if software.gathers_rows else 1
            seconds = rows_seconds(sent, self.mesh.groups[axis], copies)
        else:
            seconds = axis_seconds(exchange.kind, sent, self.mesh, axis)
        return seconds * (1 - software.expert_overlap)

    def sent_bytes(self, exchange: Exchange, strategy: Strategy) -> float:
        """Bytes of an exchange on one device. Devices that share the matrices of experts have the same rows: with
        sequence parallelism each sends its part of them."""
        if not (exchange.copies and self.device.software.sequence_parallel):
            return float(exchange.bytes)
        inner = (n for n, f in zip(self.mesh.shape, strategy.factors, strict=True) if f == "inner")
        return exchange.bytes / math.prod(inner)


def _fastest(strategies: Sequence[Strategy], seconds: Floats) -> Sequence[int]:
    """The places of the strategies to keep: of those with the same specs, which differ in what they exchange, the
    fastest."""
    if not any(any(s.exchanges) for s in strategies):
        return range(len(strategies))
    best: dict[tuple[tuple[Spec, ...], tuple[Spec, ...]], int] = {}
    for place, strategy in enumerate(strategies):
        key = strategy.inputs, strategy.outputs
        if key not in best or seconds[place] < seconds[best[key]]:
            best[key] = place
    return sorted(best.values())


def _moved_whole(operator: Operator, inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """The inputs and outputs of an operator without the table of a gather, of which it reads a few rows."""
    return (*inputs[packet(operator.kind) in GATHERS :], *outputs)


def whole_kernel(operator: Operator, tensors: Sequence[Tensor]) -> Kernel:
    """The work of one device for an operator that is not divided."""
    inputs, outputs = ([tensors[t] for t in side] for side in (operator.inputs, operator.outputs))
    heavy, sizes = splits_for(operator, tensors).heavy, NO_SIZES
    if heavy:
        shapes = ([t.shape for t in side] for side in (inputs, outputs))
        sizes = sizes_in_window(operator, product_sizes(operator, *shapes))
    moved = float(sum(t.bytes for t in _moved_whole(operator, inputs, outputs)))
    return _kernel(operator, inputs, outputs, heavy, (1.0, moved, sizes, None))


def _kernel(
    operator: Operator,
    inputs: Sequence[Tensor],
    outputs: Sequence[Tensor],
    heavy: bool,
    work: tuple[float, float, Sizes, KernelName | None],
) -> Kernel:
    """The kernel of a device with this (share of the work, bytes that it holds of what is moved whole, sizes, name)."""
    share, local_bytes, sizes, name = work
    whole = sum(t.bytes for t in _moved_whole(operator, inputs, outputs)) or 1
    moved = operator.bytes_accessed * local_bytes / whole
    steps: float = steps_in_sequence(operator.kind, inputs)
    weight_again = (steps - 1) * inputs[1].bytes if steps > 1 else 0  # of a recurrence, whole on every device
    if operator.kind == SCAN:
        steps = operator.launches
    if operator.joined is not None and sizes != NO_SIZES:
        place, part = operator.joined.place, operator.joined.share
        sizes = tuple(size / part if i == place else size for i, size in enumerate(sizes))
        steps = part
    if packet(operator.kind) in ROUTED:
        moved, _ = routed_bytes(operator, inputs, share, sizes)
    slowdown = 1.0 if operator.unfused is None else operator.unfused.slowdown
    in_float32 = operator.unfused is not None and operator.unfused.in_float32
    if operator.unfused is not None and packet(operator.kind) == "aten.convolution":
        sizes = NO_SIZES  # its slowdown is that of small sizes too, as that of the backward pass
    return Kernel(
        flops=operator.flops * share * slowdown,
        bytes_accessed=moved + weight_again,
        dtype="float32" if in_float32 else kernel_dtype(operator, inputs, outputs),
        matrix=heavy,
        kind=KernelKind.PRODUCT if in_float32 else kernel_kind(operator, heavy),
        sizes=sizes,
        steps=steps,
        name=name,
    )


def _read_only(array: Floats) -> Floats:
    array.setflags(write=False)
    return array
