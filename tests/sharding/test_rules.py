"""Every rule is proven by running it: shard the inputs, run each device's steps, recombine, compare with the whole."""

from dataclasses import replace

import pytest
import torch

from alpa_explore.graph import Operator, Phase
from alpa_explore.sharding.discovery.discover import discover
from alpa_explore.sharding.rules import HEAVY, RULES, experts
from alpa_explore.sharding.spec import REPLICATE
from alpa_explore.sharding.splits import splits_for
from alpa_explore.sharding.strategy import enumerate_strategies
from alpa_explore.tracing.symbols import overload
from tests.sharding.call import Call, real
from tests.sharding.examples import attentions, movements, pointwise, products, statistics
from tests.sharding.executor import run_sharded
from tests.sharding.proof import MESHES, prove_splits, strategies

CALLS = (*products.CALLS, *attentions.CALLS, *pointwise.CALLS, *movements.CALLS, *statistics.CALLS)


def prove(call, *, defined=True):
    operator, tensors, values = call.build()
    coverage = splits_for(operator, tensors)
    assert (coverage.how, [s.factor for s in coverage.splits]) == ("rule", call.factors)
    # A factor inside another one is possible only where the outer one is divided to single entries.
    size_of = {s.factor: s.size for s in coverage.splits}
    inside = tuple((size_of[s.inner_of], 2) for s in coverage.splits if s.inner_of)
    meshes = (*MESHES, *inside)
    # A factor that no mesh can use was never proven.
    assert prove_splits(coverage.splits, operator, tensors, values, defined=defined, meshes=meshes) == set(call.factors)


@pytest.mark.parametrize("call", CALLS, ids=str)
def test_every_strategy_computes_the_whole(call):
    prove(call)


@pytest.mark.parametrize("call", pointwise.UNDEFINED, ids=str)
def test_memory_that_is_not_set_has_the_right_shape(call):
    prove(call, defined=False)


@pytest.mark.slow
@pytest.mark.parametrize("call", products.GROUPED, ids=str)
def test_every_strategy_of_grouped_products_computes_the_whole(call):
    pytest.importorskip("transformers.integrations.moe", reason="pip install alpa-explore[hf]")
    prove(call)


@pytest.mark.parametrize("call", pointwise.RANDOM, ids=str)
def test_shards_draw_different_numbers_and_replicas_equal_ones(call):
    operator, tensors, values = call.build()
    assert [s.factor for s in splits_for(operator, tensors).splits] == call.factors
    for strategy in strategies(splits_for(operator, tensors).splits, operator, tensors, (2, 2)):
        made = run_sharded(operator, tensors, values, strategy, (2, 2))  # compares the copies
        if operator.kind == "aten.native_dropout.default":
            x, (y, kept) = values[0], made
            torch.testing.assert_close(y, torch.where(kept, x / 0.75, 0.0))
            made = (torch.rand_like(x),) if kept.all() else (kept.double(),)
        for axis, dim in enumerate(strategy.outputs[0]):
            if dim >= 0 and strategy.outputs[0].count(dim) == 1:
                halves = made[0].chunk(2, dim)
                assert not torch.equal(*halves), f"{strategy.name}: the devices of axis {axis} drew the same numbers"


def test_an_input_that_only_names_a_dtype_is_sharded_along_the_dims_that_the_output_has_too():
    """Else it is gathered for an operator that does not read it, as a router's scores are for the zeros of theirs."""
    operator, tensors, _ = Call("aten.new_zeros.default", real(8, 4), [8, 16], factors="").build()
    assert [(s.inputs, s.outputs) for s in splits_for(operator, tensors).splits] == [((0,), (0,)), ((REPLICATE,), (1,))]


def test_every_rule_has_an_example():
    every = {c.kind for c in (*CALLS, *products.GROUPED, *pointwise.UNDEFINED, *pointwise.RANDOM)}
    assert set(RULES) == every | set(experts.RULES)  # tests/sharding/test_experts.py: both passes together


def test_the_registry_names_real_operators():
    for kind in RULES:
        if kind.startswith("aten."):
            overload(kind)


def test_heavy_operators_are_never_replicated_where_they_can_be_divided():
    for call in CALLS:
        if call.kind in HEAVY:
            operator, tensors, _ = call.build()
            shapes = ([tensors[t].shape for t in which] for which in (operator.inputs, operator.outputs))
            coverage = splits_for(operator, tensors)
            assert coverage.heavy
            for strategy in enumerate_strategies(coverage.splits, *shapes, (2, 2), replicable=False):
                ramps = {s.factor: s.ramp for s in coverage.splits}
                blocks = 2 ** sum(bool(ramps[factor]) for factor in strategy.factors)
                ramp = max(ramps[factor] for factor in strategy.factors)
                # The cost of 256 rows, of which those of a ramp cost less.
                cost = [min((row + 0.5) / (256 * ramp), 1.0) if ramp else 1.0 for row in range(256)]
                busiest = sum(cost[-256 // blocks :]) * blocks / sum(cost)
                assert strategy.work_share == pytest.approx(busiest / 4, rel=1e-4)


def test_an_unknown_operator_is_replicated_with_a_reason():
    unknown = Operator(
        index=0, name="u", kind="aten.unheard_of.default", phase=Phase.FORWARD, inputs=(), outputs=(), arguments=()
    )
    coverage = splits_for(replace(unknown, discovered=discover(unknown, ())), ())
    assert (coverage.splits, coverage.heavy, coverage.how) == ((), False, "replicated")
