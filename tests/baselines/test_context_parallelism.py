"""Context parallelism in baselines: what is stored is divided over data and context parallel devices together."""

import pytest

import alpa_explore as ax
from alpa_explore.errors import OptionError
from alpa_explore.graph import TensorKind
from alpa_explore.plans.report.parallelism import parallelism_lines
from tests.programs.cases import captured

CLUSTER = "1x8:h100"


@pytest.fixture(scope="module")
def graph():
    return captured("llama of 1", 2, 0, ())[0]


def planned(graph, kind, cluster=CLUSTER, **degrees):
    return ax.baseline(graph, cluster, kind, num_microbatches=2, num_layers=1, delta=1.0, **degrees)


def rotary_bytes(graph):
    """Bytes of the tables of positions, which every device has whole."""
    return sum(t.bytes for t in graph.tensors if t.kind is TensorKind.BUFFER)


def divisible(graph):
    """(elements of matrices, which 8 devices can divide; of everything else)"""
    matrices = [graph.tensors[p.tensor] for p in graph.parameters if len(graph.tensors[p.tensor].shape) == 2]
    whole = sum(graph.tensors[p.tensor].elements for p in graph.parameters)
    return sum(t.elements for t in matrices), whole - sum(t.elements for t in matrices)


@pytest.mark.parametrize(
    ("kind", "degrees", "name", "shards"),
    [
        ("fsdp", {"cp": 4}, "zero-3 (2 shards, cp 4)", 8),
        ("hsdp", {"cp": 4}, "hsdp (2 replicas of 1 shard, cp 4)", 4),
        ("fsdp+tp+pp", {"cp": 2, "tp": 2, "replicas": 1}, "fsdp+tp+pp (2 shards, cp 2, tp 2, pp 1)", 8),
    ],
)
def test_weights_gradients_and_optimizer_are_divided_over_data_and_context(graph, kind, degrees, name, shards):
    """In float64, 8 bytes each of a weight, its gradient and the two moments of Adam."""
    plan = planned(graph, kind, **degrees)
    assert plan.options.baseline == name
    matrices, others = divisible(graph)
    held = plan.stages[0].weight_bytes - rotary_bytes(graph)
    assert 32 * matrices / shards <= held <= 32 * (matrices / shards + others)
    (line,) = parallelism_lines(plan)
    assert "context parallel (ring, zig-zag) and FSDP (ZeRO-3) over axis" in line
    forward = [o for o in plan.stages[0].operators if o.phase == "forward"]
    assert any("all-gather" in line and "weight" in line for o in forward for line in o.communication)


def test_megatron_divides_optimizer_state_over_data_and_context(graph):
    """Distributed optimizer: 16 bytes of a weight are its own and its gradient's, 16 the optimizer's."""
    matrices, others = divisible(graph)
    held = planned(graph, "megatron", tp=1, pp=1, cp=4, dp=2).stages[0].weight_bytes - rotary_bytes(graph)
    assert (
        16 * (matrices + others) + 16 * matrices / 8 <= held <= 16 * (matrices + others) + 16 * (matrices / 8 + others)
    )


@pytest.mark.slow
def test_without_a_degree_those_with_and_without_are_tried(graph):
    given = [planned(graph, "fsdp+tp+pp", tp=tp, cp=cp, pp=1) for tp, cp in ((1, 4), (2, 2), (4, 1))]
    found = planned(graph, "fsdp+tp+pp", pp=1).predicted.iteration_seconds
    assert found == min(plan.predicted.iteration_seconds for plan in given)


def test_fsdp_of_fewer_samples_than_devices_divides_sequences(graph):
    assert planned(graph, "fsdp").options.baseline == "zero-3 (2 shards, cp 4)"


def test_names_for_three_and_five_dims(graph):
    assert planned(graph, "5d", cp=4, pp=1).stages == planned(graph, "megatron", cp=4, tp=1, pp=1).stages
    assert planned(graph, "3d", pp=1).options.baseline == "megatron (tp 4, dp 2, pp 1)"
    with pytest.raises(OptionError, match=r"The baseline 3d does not take cp: cp=2. It takes tp, dp, pp"):
        planned(graph, "3d", cp=2)


def test_a_sequence_that_cannot_be_divided_is_refused(graph):
    with pytest.raises(OptionError, match="The positions cannot be divided for this degree: cp=3 for"):
        planned(graph, "fsdp", "1x6:h100", cp=3)


def test_the_tables_that_later_stages_read_do_not_take_positions_for_the_batch() -> None:
    """The rotary tables in zig-zag order enter a stage, with positions as their first dim. The norms of a later stage
    are divided over the sequence among tensor and context parallel devices, as those of the first."""
    plan = ax.baseline("llama-tiny", "1x8:h100", "megatron", num_microbatches=64, tp=2, cp=2, dp=1, pp=2)
    norms = [
        {str(o.output) for o in stage.operators if o.op == "alpa_explore.rms_norm.default"} for stage in plan.stages
    ]
    assert norms == [{"RS01R"}, {"RS01R"}]
