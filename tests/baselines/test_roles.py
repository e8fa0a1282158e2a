"""Tensor parallelism as Megatron-LM runs it: what it divides, and how many collectives a block costs."""

from __future__ import annotations

from collections import Counter

import pytest

import alpa_explore as ax
from alpa_explore.baselines.block_work import CapturedBlocks, decoder_work
from alpa_explore.baselines.dims import Label, dim_labels
from alpa_explore.baselines.roles import Role
from alpa_explore.cluster import Cluster, Submesh, logical_mesh
from alpa_explore.cost.kernels import KernelKind
from alpa_explore.errors import OptionError
from alpa_explore.graph import Phase
from alpa_explore.models.configs import DecoderConfig
from alpa_explore.models.factory import make_inputs, make_module
from alpa_explore.plans.report.parallelism import parallelism_lines
from alpa_explore.programs.check import check
from alpa_explore.programs.lowering.decision import stage_decision
from alpa_explore.programs.program import Collective
from alpa_explore.schedules.task import Action
from alpa_explore.sharding.local.steps import Reduction
from alpa_explore.sharding.reshard import StepKind
from alpa_explore.tracing.capture import capture
from tests.programs.cases import Case, captured, following

MODELS = ("gpt", "fused gpt", "llama", "tied llama", "fused llama")
REDUCE, GATHER, SCATTER = StepKind.ALL_REDUCE, StepKind.ALL_GATHER, StepKind.REDUCE_SCATTER
PRODUCTS = ("aten.mm.default", "aten.addmm.default")


def decided(case, mesh, *roles):
    problem = case.problem(0, 0, mesh)
    return stage_decision(problem, following(*roles)(problem), range(len(problem.model.mesh.shape)))


def collectives(program, action):
    """Of rank 0, by kind."""
    instructions = program.stages[0].tasks[action][0]
    return Counter(i.kind for i in instructions if isinstance(i, Collective))


@pytest.mark.sweep(kept=2, in_turn=True)
@pytest.mark.slow
@pytest.mark.parametrize("samples", [1, 2])
@pytest.mark.parametrize("blocks", [1, 2])
@pytest.mark.parametrize("model", MODELS)
def test_a_block_has_two_all_reduces_in_each_pass(model, blocks, samples) -> None:
    case = Case(f"{model} of {blocks}", samples=samples, num_layers=1)
    program = case.program([((0, 0), (2,))], following(Role.TENSOR))
    # Forward also: the embedding; maximum, sum and picked scores of the loss. Backward: into the final norm; the loss.
    assert collectives(program, Action.FORWARD) == {REDUCE: 2 * blocks + 1 + 3}
    assert collectives(program, Action.BACKWARD) == {REDUCE: 2 * blocks + 1 + 1}
    largest = [i for i in program.stages[0].tasks[Action.FORWARD][0] if isinstance(i, Collective)]
    assert [i.reduction for i in largest].count(Reduction.MAXIMUM) == 1


@pytest.mark.sweep(kept=5)
@pytest.mark.parametrize("samples", [1, 2])
@pytest.mark.parametrize("blocks", [1, 2])
@pytest.mark.parametrize("model", MODELS)
def test_with_the_sequence_each_is_a_reduce_scatter_and_an_all_gather(model, blocks, samples) -> None:
    case = Case(f"{model} of {blocks}", samples=samples, num_layers=1)
    program = case.program([((0, 0), (2,))], following(Role.TENSOR_SEQUENCE))
    each = 2 * blocks + 1
    assert collectives(program, Action.FORWARD) == {SCATTER: each, GATHER: each, REDUCE: 3}
    assert collectives(program, Action.BACKWARD) == {SCATTER: each, GATHER: each, REDUCE: 1}


@pytest.mark.parametrize("role", [Role.TENSOR, Role.TENSOR_SEQUENCE])
@pytest.mark.parametrize("model", MODELS)
def test_columns_then_rows_heads_and_the_vocabulary_are_divided(model, role) -> None:
    case = Case(f"{model} of 2", samples=2, num_layers=1)
    graph, decision = case.graph, decided(case, (2,), role)
    forward = [o for o in graph.operators if o.phase is Phase.FORWARD]
    factors = {o.index: decision.strategies[o.index].factors[0] for o in forward}
    names = [o.module.rpartition(".")[2] for o in forward if o.kind in PRODUCTS]
    inward = {"projection", "down"}
    expected = ["k" if name in inward else "n" for name in names]
    assert [factors[o.index] for o in forward if o.kind in PRODUCTS] == expected
    attention = {"aten.matmul.default": "c", "alpa_explore.attention.default": "heads"}
    assert {factors[o.index] for o in forward if o.kind in attention} <= set(attention.values())
    divided = {"aten.embedding.default": "vocabulary", "aten._log_softmax.default": "dim1"}
    divided["aten.nll_loss_forward.default"] = "classes"
    for kind, factor in divided.items():
        assert [factors[o.index] for o in forward if o.kind == kind] == [factor]


@pytest.mark.parametrize("model", MODELS)
def test_the_residual_stream_is_whole_or_divided_along_the_sequence(model) -> None:
    case = Case(f"{model} of 2", samples=2, num_layers=1)
    labels = dim_labels(case.graph)
    for role, placement in ((Role.TENSOR, -1), (Role.TENSOR_SEQUENCE, 1)):
        decision = decided(case, (2,), role)
        added = [
            o
            for o in case.graph.operators
            if o.kind == "aten.add.Tensor"
            and o.phase is Phase.FORWARD
            and labels.get((o.outputs[0], 2)) is Label.RESIDUAL
        ]
        assert len(added) >= 4
        assert {decision.strategies[o.index].outputs[0] for o in added} == {(placement,)}
        norms = [p for p, w in enumerate(case.graph.parameters) if "norm" in w.name]
        assert {decision.weights[p] for p in norms} == {(-1,)}
        pending = {decision.accumulators[p] for p in norms}
        assert pending == ({(-2,)} if role is Role.TENSOR_SEQUENCE else {(-1,)})


@pytest.mark.sweep(kept=6)
@pytest.mark.parametrize("mesh", [(2,), (4,)])
@pytest.mark.parametrize("role", [Role.TENSOR, Role.TENSOR_SEQUENCE])
@pytest.mark.parametrize("model", ["gpt", "tied llama", "fused llama"])
def test_both_compute_what_one_process_computes(model, role, mesh) -> None:
    """Tied weights with a divided vocabulary among them."""
    case = Case(f"{model} of 1", samples=2, num_layers=1, num_microbatches=2)
    program = case.program([((0, 0), mesh)], following(role))
    check(program)
    case.assert_equal(program)


@pytest.mark.parametrize("role", [Role.TENSOR, Role.TENSOR_SEQUENCE])
def test_with_data_parallelism_on_the_other_axis(role) -> None:
    case = Case("gpt of 1", samples=2, num_layers=1, num_microbatches=2)
    program = case.program([((0, 0), (2, 2))], following(Role.DATA, role))
    check(program)
    case.assert_equal(program)


@pytest.mark.slow
def test_the_work_of_a_block_of_llama_is_megatrons() -> None:
    """Two products in, two out, attention: beside them all-gather and reduce-scatter in turn, each of one activation,
    and what the backward pass needs divided by the devices."""
    hidden, ffn, keys, tokens, devices = 1024, 2816, 256, 4096, 4
    config = DecoderConfig(
        hidden=hidden,
        layers=2,
        heads=16,
        kv_heads=4,
        vocabulary=32000,
        sequence=tokens,
        ffn=ffn,
        fused_projections=True,
    )
    graph = capture(make_module(config, "meta", 0), make_inputs(config, 1, "meta", 0), precision="bfloat16")
    cluster = Cluster.parse("1x4:h100", software="megatron")
    mesh = logical_mesh(cluster, Submesh(1, devices), (devices,))
    block = decoder_work(
        graph, cluster.device, mesh, [Role.TENSOR_SEQUENCE], blocks=CapturedBlocks.of_period(1)
    ).blocks[0]
    for work, products in ((block.forward, 4), (block.backward, 8)):
        assert [c.kind for c in work.collectives] == [GATHER, SCATTER] * 2
        assert {c.bytes for c in work.collectives} == {2 * hidden * tokens}
        assert sum(k.kind is KernelKind.PRODUCT for k in work.kernels) == products
    # Inputs and outputs of two norms; queries, keys, values and the output; gate, up and what enters `down` (the kernel
    # of the backward pass computes silu again). And in float32 a number for each row of a norm, and for each query and
    # head.
    kept = (8 + 4) * hidden + 4 * keys + 6 * ffn
    assert block.recomputed["none"].held_bytes == tokens * (kept + 4 * (2 + config.heads)) / devices


def test_labels_of_a_decoder() -> None:
    graph = Case("gpt of 2", samples=2, num_layers=1).graph
    labels = dim_labels(graph)
    parameters = {p.name: p.tensor for p in graph.parameters}

    def of(name):
        tensor = parameters[name]
        return [labels.get((tensor, d)) for d in range(len(graph.tensors[tensor].shape))]

    assert of("embedding.tokens.weight") == [None, Label.RESIDUAL]
    assert of("embedding.positions") == [Label.POSITIONS, Label.RESIDUAL]
    assert of("h.1.mlp.up.weight") == [None, Label.RESIDUAL]
    assert of("h.1.mlp.down.weight") == [Label.RESIDUAL, None]
    assert of("h.1.mlp.up.bias") == [None]
    assert of("h.1.mlp.down.bias") == [Label.RESIDUAL]
    assert of("h.1.attention.qkv.weight") == [None, Label.RESIDUAL]
    (lost,) = (o for o in graph.operators if o.kind == "aten.nll_loss_forward.default")
    assert [labels.get((lost.inputs[0], d)) for d in range(2)] == [Label.ROWS, None]


def test_a_residual_stream_as_wide_as_the_sequence_is_long_is_not_taken_for_it() -> None:
    config = DecoderConfig(hidden=16, layers=1, heads=2, vocabulary=64, sequence=16, ffn=48)
    graph = capture(make_module(config, "meta", 0), make_inputs(config, 2, "meta", 0))
    labels = dim_labels(graph)
    for tensor in graph.tensors:
        found = [label for d in range(len(tensor.shape)) if (label := labels.get((tensor.index, d)))]
        assert len(found) == len(set(found)), tensor.name
    norms = [o for o in graph.operators if o.kind == "alpa_explore.rms_norm.default"]
    assert {labels[o.outputs[0], 2] for o in norms} == {Label.RESIDUAL}
    assert {labels[o.outputs[1], 1] for o in norms} == {Label.POSITIONS}


def test_a_model_without_a_known_sequence_has_no_labels() -> None:
    assert dim_labels(Case("mlp-tiny").graph) == {}


def test_megatrons_distributed_optimizer_updates_a_shard_on_each_replica() -> None:
    case = Case("gpt of 1", samples=2, num_layers=1, num_microbatches=2)
    zero = decided(case, (2,), Role.DATA_ZERO_1)
    plain = decided(case, (2,), Role.DATA)
    assert set(zero.weights.values()) == set(plain.weights.values()) == {(-1,)}
    assert {strategy.outputs[0] for strategy in zero.updates.values()} == {(0,)}
    assert {strategy.outputs[0] for strategy in plain.updates.values()} == {(-1,)}
    program = case.program([((0, 0), (2,))], following(Role.DATA_ZERO_1))
    check(program)
    case.assert_equal(program)


def test_megatron_with_context_parallelism_says_so_and_divides_the_sequence():
    graph = captured("tied llama of 1", 2, 0, ())[0]
    plan = ax.baseline(graph, "1x8:h100", "megatron", num_microbatches=2, num_layers=1, delta=1.0, tp=2, cp=2, dp=2)
    assert plan.options.baseline == "megatron (tp 2, cp 2, dp 2, pp 1)"
    (line,) = parallelism_lines(plan)
    assert line == (
        "data parallel (ZeRO-1) over axis 0 (2), context parallel (ring, zig-zag) over axis 1 (2), "
        "tensor parallel with sequence over axis 2 (2)"
    )
    with pytest.raises(OptionError, match="microbatches of dp samples"):
        ax.baseline(graph, "1x8:h100", "megatron", num_microbatches=2, num_layers=1, delta=1.0, tp=4, cp=2, dp=1)
