"""Prices of routed experts: bytes of the all-to-alls, few rows an expert, the busiest device, a capacity."""

from dataclasses import replace

import pytest

from alpa_explore.cluster import Cluster, LogicalMesh
from alpa_explore.cost.collectives import axis_seconds
from alpa_explore.cost.kernels import routed_bytes
from alpa_explore.cost.model import CostModel
from alpa_explore.graph import Operator, Phase, Ref, Tensor, TensorKind, TrainingGraph
from alpa_explore.graph.counts import ROUTED, bytes_accessed, flops, packet
from alpa_explore.sharding.reshard import StepKind

M, F = 4096, 8192
DEVICE = Cluster.parse("1x8:h100").device


def graph_of(tokens, experts, chosen=2):
    """One operator of routed experts in bfloat16, its tensors as a capture makes them."""
    shapes = {
        "tokens": (tokens, M),
        "chosen": (tokens, chosen),
        "weights": (tokens, chosen),
        "gate": (experts, M, F),
        "up": (experts, M, F),
        "down": (experts, F, M),
        "combined": (tokens, M),
        "rows": (tokens, experts, chosen * M // experts),
        "hidden": (tokens, experts, chosen * 2 * F // experts),
    }
    kinds = {"rows": TensorKind.ROUTED, "hidden": TensorKind.ROUTED}
    tensors = tuple(
        Tensor(
            index=i,
            name=name,
            shape=shape,
            dtype="int64" if name == "chosen" else "bfloat16",
            kind=kinds.get(name, TensorKind.VALUE),
            producer=0 if i > 5 else None,
        )
        for i, (name, shape) in enumerate(shapes.items())
    )
    kind, options = "alpa_explore.experts.default", ("silu", "separate", True, 0.0, 1.0, 0.0, 0, experts, True)
    arguments = (Ref(0), Ref(1), Ref(2), (Ref(3), Ref(4), Ref(5)), (), *options)
    return TrainingGraph(
        name="experts",
        tensors=tensors,
        operators=(
            Operator(
                index=0,
                name="experts",
                kind=kind,
                phase=Phase.FORWARD,
                inputs=(0, 1, 2, 3, 4, 5),
                outputs=(6, 7, 8),
                arguments=arguments,
                flops=flops(kind, tensors[:6], tensors[6:], arguments),
                bytes_accessed=bytes_accessed(kind, tensors[:6], tensors[6:], arguments),
            ),
        ),
        inputs=(0, 1, 2),
        parameters=(),
        loss=6,
        samples=1,
        tokens=tokens,
        precision="bfloat16",
        optimizer="adam",
        rematerialization=False,
        recipe=None,
        warnings=(),
    )


def priced(graph, mesh=(8,), **figures):
    """({factors: strategy}, {factors: seconds}, mesh, the priced operator)."""
    logical = LogicalMesh(mesh, (4e11,) * len(mesh), (2e-6,) * len(mesh))
    found = CostModel(replace(DEVICE, **figures), logical).operator(graph, 0)
    seconds = dict(zip((s.factors for s in found.strategies), found.seconds.tolist(), strict=True))
    return {s.factors: s for s in found.strategies}, seconds, logical, found


def test_flops_are_those_of_every_tokens_experts():
    assert graph_of(512, 8).operators[0].flops == 512 * 2 * 3 * 2 * M * F


def test_an_all_to_all_carries_every_row_there_and_back():
    graph = graph_of(8192, 8)
    strategies, _, _, _ = priced(graph)
    exchanges = strategies["exchange",].exchanges[0]
    # tokens of a device × top-k × hidden × bytes, twice.
    assert [(e.kind, e.bytes) for e in exchanges] == [(StepKind.ALL_TO_ALL, 8192 // 8 * 2 * M * 2)] * 2
    on_two_axes = priced(graph, (2, 4))[0]
    assert on_two_axes["tokens", "exchange"].exchanges[1][0].bytes == 8192 // 8 * 2 * M * 2
    # A device with a part of the inner width of its experts needs all of each row.
    assert on_two_axes["inner", "exchange"].exchanges[1][0].bytes == 8192 // 4 * 2 * M * 2


def test_rows_that_travel_cost_their_all_to_alls():
    graph = graph_of(8192, 8)
    strategies, seconds, mesh, _ = priced(graph)
    sent = strategies["exchange",].exchanges[0][0].bytes
    travel = 2 * axis_seconds(StepKind.ALL_TO_ALL, sent, mesh, 0) * (1 - DEVICE.software.expert_overlap)
    assert seconds["exchange",] == pytest.approx(seconds["experts",] + travel, rel=0.02)


def test_few_rows_an_expert_are_less_efficient():
    few, many = (priced(graph_of(4096, experts))[1]["tokens",] for experts in (256, 8))
    assert few > 1.5 * many


def test_the_busiest_device_decides_where_devices_hold_different_experts():
    graph = graph_of(2**16, 8)  # arithmetic is the limit
    even, busy = (priced(graph, expert_imbalance=x) for x in (1.0, 1.5))
    for factors in (("experts",), ("exchange",)):
        assert busy[1][factors] == pytest.approx(1.5 * even[1][factors], rel=0.05)
    assert busy[1]["tokens",] == even[1]["tokens",]
    place = [s.factors for s in busy[3].strategies].index(("experts",))
    assert busy[3].output_bytes[1][place] == 1.5 * even[3].output_bytes[1][place]


def test_a_capacity_is_computed_whatever_is_routed():
    graph = graph_of(2**16, 8)
    free, bounded = priced(graph), priced(graph, expert_capacity=1.25, expert_imbalance=3.0)
    for factors in (("tokens",), ("exchange",)):
        assert bounded[1][factors] == pytest.approx(1.25 * free[1][factors], rel=0.05)


def test_rows_are_moved_around_the_products_that_read_them():
    """By hand: of T tokens with k experts each, rows of M numbers are gathered and summed; hidden values of 2 F become
    inner ones of F. The products read and write the same rows, and the matrices."""
    tokens, experts, rows = 4096, 8, 4096 * 2
    graph = graph_of(tokens, experts)
    model = CostModel(DEVICE, LogicalMesh((), (), ()))
    (strategy,) = model.operator(graph, 0).strategies
    operator = graph.operators[0]
    (moved,) = model.others(operator, graph.tensors, strategy)
    assert moved.bytes_accessed == 2 * (2 * (rows + tokens) * M + rows * 3 * F)
    products = model.kernel(operator, graph.tensors, strategy)
    assert products.bytes_accessed == 2 * (rows * (2 * M + 3 * F) + experts * 3 * F * M)


@pytest.mark.parametrize(("products", "bytes_of_a_number"), [(1, 28), (2, 40)])
def test_a_bias_of_the_results_goes_over_them_again(products, bytes_of_a_number):
    """By hand: in float32, step by step. Forward b · w, t + b · w, joined, rounded; backward cast, rounded, joined, and
    times w for b and times b for w."""
    graph = graph_of(512, 8)
    operator, inputs = graph.operators[0], graph.tensors[:6]
    if products == 2:
        order = (0, 1, 2, 0, 0, 3, 4, 5)
        arguments = tuple(map(Ref, order[:5])) + operator.arguments[3:]
        operator = replace(operator, kind="alpa_explore.experts_backward.default", arguments=arguments)
        inputs = tuple(graph.tensors[t] for t in order)
    place = ROUTED[packet(operator.kind)].matrices + 1
    biased = replace(operator, arguments=(*operator.arguments[:place], (Ref(6),), *operator.arguments[place + 1 :]))
    sizes, share = (8, 128, 2 * F, M), float(products)
    (same, without), (products_bytes, with_bias) = (routed_bytes(o, inputs, share, sizes) for o in (operator, biased))
    assert same == products_bytes
    steps = ((4, 4 + 2 + 4, 4 + 4, 4 + 2), (2 + 4, 4 + 2, 2 + 2, 4 + 4 + 4, 4 + 4 + 4))[products - 1]
    assert sum(steps) == bytes_of_a_number
    assert with_bias - without == bytes_of_a_number * 512 * 2 * M
