"""Expert parallelism in baselines: experts are divided over data-parallel devices, everything else is as without."""

import pytest

import alpa_explore as ax
from alpa_explore.errors import OptionError
from tests.programs.models import build_any

CLUSTER = "1x8:h100"


@pytest.fixture(scope="module")
def graph():
    model, inputs = build_any("routed-experts", 8)
    return ax.capture(model, inputs)


def planned(graph, kind="megatron", **degrees):
    return ax.baseline(graph, CLUSTER, kind, num_microbatches=4, num_layers=2, **degrees)


def experts_of(plan):
    return {o.strategy for s in plan.stages for o in s.operators if o.op.startswith("alpa_explore.experts")}


@pytest.mark.parametrize(
    ("degrees", "divided"),
    [
        ({"tp": 1, "dp": 8, "pp": 1, "ep": 1}, {"tokens"}),
        ({"tp": 1, "dp": 8, "pp": 1, "ep": 8}, {"exchange"}),
        ({"tp": 1, "dp": 8, "pp": 1, "ep": 4}, {"tokens·exchange"}),
        ({"tp": 2, "dp": 4, "pp": 1, "ep": 4}, {"exchange·inner"}),
        ({"tp": 1, "dp": 4, "pp": 2, "ep": 2}, {"tokens·exchange"}),
    ],
)
def test_tokens_travel_to_the_devices_that_hold_their_experts(graph, degrees, divided):
    plan = planned(graph, **degrees)
    found = experts_of(plan)
    assert found == divided or (degrees["tp"] == 2 and found <= {"exchange·inner", "exchange·experts"})


@pytest.mark.parametrize("ep", [1, 2, 4, 8])
def test_experts_are_held_once_in_every_group(graph, ep):
    """Weights and gradients in float32 with the moments of Adam: 16 bytes for each parameter of a device."""
    plan = planned(graph, tp=1, dp=8, pp=1, ep=ep)
    of_experts = sum(graph.tensors[p.tensor].elements for p in graph.parameters if p.name.startswith(("matr", "bias")))
    others = sum(graph.tensors[p.tensor].elements for p in graph.parameters) - of_experts
    held = plan.stages[0].weight_bytes
    # Of these the optimizer's 8 bytes are divided over all replicas (ZeRO-1) where a dim is divisible.
    least, most = 8 * (of_experts / ep + others), 16 * (of_experts / ep + others)
    assert least <= held <= most


def test_fully_sharded_data_parallelism_divides_experts_too(graph):
    plan = planned(graph, "fsdp+tp+pp", tp=1, dp=8, pp=1, ep=8)
    assert experts_of(plan) == {"exchange"}
    assert plan.stages[0].weight_bytes < planned(graph, tp=1, dp=8, pp=1, ep=8).stages[0].weight_bytes


def test_a_search_over_the_degrees_is_never_worse_than_given_ones(graph):
    found = planned(graph, tp=1, pp=1).predicted.iteration_seconds
    given = [planned(graph, tp=1, pp=1, ep=ep).predicted.iteration_seconds for ep in (1, 2, 4, 8)]
    assert found == pytest.approx(min(given))


def test_degrees_that_do_not_divide_are_refused(graph):
    with pytest.raises(OptionError, match="divisor of 8"):
        planned(graph, ep=3)
    with pytest.raises(OptionError, match="does not take ep"):
        planned(graph, "zero-3", ep=2)
    dense = ax.capture(*build_any("fused-attention", 8))
    with pytest.raises(OptionError, match="no routed experts"):
        planned(dense, ep=2)
