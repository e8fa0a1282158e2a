"""The proof of a split, from a rule or from discovery: run every strategy that it allows, recombine, compare."""

from alpa_explore.sharding.strategy import enumerate_strategies
from tests.sharding.executor import assert_equal, run_sharded

MESHES = ((2,), (4,), (2, 2), (2, 4))


def strategies(splits, operator, tensors, mesh):
    """All strategies, the fully replicated one among them."""
    shapes = ([tensors[t].shape for t in which] for which in (operator.inputs, operator.outputs))
    return enumerate_strategies(splits, *shapes, mesh, replicable=True)


def prove_splits(splits, operator, tensors, values, *, defined=True, meshes=MESHES):
    """Prove all splits; the factors that some mesh could use. `values`: inputs and outputs of the whole, by tensor
    index."""
    used = set()
    for mesh in meshes:
        for strategy in strategies(splits, operator, tensors, mesh):
            made = run_sharded(operator, tensors, values, strategy, mesh, defined=defined)
            used |= set(strategy.factors)
            for tensor, value in zip(operator.outputs, made, strict=True):
                if defined:
                    assert_equal(value, values[tensor], f"{operator.kind} as {strategy.name} on {mesh}")
                assert value.shape == values[tensor].shape
    return used - {"-"}
