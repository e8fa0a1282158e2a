"""What one device runs: the steps that all devices share, and sums that 16-bit losses must not overflow."""

from collections import Counter

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from alpa_explore.sharding.local.local_call import LocalCollective, Reduction, localize
from alpa_explore.sharding.reshard import StepKind
from alpa_explore.sharding.rules.attention import CONTEXT
from alpa_explore.sharding.rules.factors import regrouped
from alpa_explore.sharding.spec import REPLICATE
from alpa_explore.sharding.splits import splits_for
from alpa_explore.sharding.strategy import enumerate_strategies
from tests.sharding import executor, proof
from tests.sharding.call import Call, integers, positive, real
from tests.sharding.examples import attentions, statistics
from tests.sharding.executor import assert_equal, run_sharded


def under(call, inputs, mesh):
    """(operator, tensors, values, the one strategy that reads these specs)."""
    operator, tensors, values = call.build()
    shapes = ([tensors[t].shape for t in which] for which in (operator.inputs, operator.outputs))
    strategies = enumerate_strategies(splits_for(operator, tensors).splits, *shapes, mesh, replicable=True)
    (strategy,) = (s for s in strategies if s.inputs == inputs)
    return operator, tensors, values, strategy


def test_a_tensor_that_is_read_twice_can_have_two_shardings():
    x = real(4, 4)
    operator, tensors, values, strategy = under(
        Call("aten.mm.default", x, x, factors=""), ((0, REPLICATE), (REPLICATE, 1)), (2, 2)
    )
    assert operator.inputs == (0, 0)
    (made,) = run_sharded(operator, tensors, values, strategy, (2, 2))
    assert_equal(made, x @ x, "x times x")


@pytest.mark.parametrize(
    "call", [c for c in statistics.CALLS if any(k in c.kind for k in ("batch_norm", "nll", "softmax"))], ids=str
)
def test_all_reduced_bytes_equal_those_of_the_strategy(call, monkeypatch):
    """The exchanges of a strategy are the all-reduces of its LocalCalls (in float32, which training uses)."""
    operator, tensors, values = call.build()
    sent = [0, 0]

    def recorded(step, known):
        for axis in step.axes:
            sent[axis] += 4 * known[0, 0][step.source].numel()
        exchange(step, known)

    exchange = executor.exchange
    monkeypatch.setattr(executor, "exchange", recorded)
    for strategy in proof.strategies(splits_for(operator, tensors).splits, operator, tensors, (2, 2)):
        sent[:] = [0, 0]
        run_sharded(operator, tensors, values, strategy, (2, 2))
        assert {e.kind for exchanges in strategy.exchanges for e in exchanges} <= {StepKind.ALL_REDUCE}
        assert sent == [sum(e.bytes for e in exchanges) for exchanges in strategy.exchanges], strategy.name


@pytest.mark.parametrize("call", attentions.CONTEXT, ids=str)
def test_exchanged_bytes_of_attention_equal_those_of_the_strategy(call, monkeypatch):
    """A ring passes every block but one to the next device, p − 1 times 1 / p of what its strategy counts."""
    operator, tensors, values = call.build()
    sent = Counter()

    def recorded(step, known):
        piece = known[0, 0][step.source]
        whole = step.kind is StepKind.PERMUTE and len(step.order) == 2
        sent[StepKind.RING if whole else step.kind, step.axes] += (2 if whole else 1) * piece.nbytes
        exchange(step, known)

    exchange = executor.exchange
    monkeypatch.setattr(executor, "exchange", recorded)
    context = [
        s
        for s in proof.strategies(splits_for(operator, tensors).splits, operator, tensors, (2, 2))
        if CONTEXT.intersection(s.factors)
    ]
    assert {f for s in context for f in s.factors} > CONTEXT
    for strategy in context:
        sent.clear()
        run_sharded(operator, tensors, values, strategy, (2, 2))
        expected = Counter()
        for axis, exchanges in enumerate(strategy.exchanges):
            for e in exchanges:
                expected[e.kind, (axis,)] += e.bytes
        assert sent == expected, strategy.name


def test_only_a_sharded_softmax_takes_a_maximum_over_devices():
    call = Call("aten._log_softmax.default", real(4, 8), 1, False, factors="")
    operator, tensors, _, strategy = under(call, ((0, 1),), (2, 2))
    reductions = [
        s for s in localize(operator, tensors, strategy, (2, 2), (0, 1)).steps if isinstance(s, LocalCollective)
    ]
    assert [(s.axes, s.reduction) for s in reductions] == [((1,), Reduction.MAXIMUM), ((1,), Reduction.SUM)]
    _, _, _, strategy = under(call, ((0, REPLICATE),), (2, 2))
    assert len(localize(operator, tensors, strategy, (2, 2), (0, 1)).steps) == 1


@pytest.mark.parametrize("size", [1e-3, 1e3])
def test_a_divided_log_softmax_neither_overflows_nor_loses_digits(size):
    """The largest entry of a row is on one device: another shard's own maximum would overflow or underflow."""
    x = size * real(4, 8, dtype=torch.float32)
    x[:, 0] = 4 * size
    call = Call("aten._log_softmax.default", x, 1, False, factors="")
    operator, tensors, values, strategy = under(call, ((1,),), (4,))
    (made,) = run_sharded(operator, tensors, values, strategy, (4,))
    torch.testing.assert_close(made, torch.log_softmax(x.double(), 1).float())


@pytest.mark.parametrize("specs", [((0,), (0,)), ((1,), (REPLICATE,))], ids=["batch", "classes"])
def test_a_mean_of_many_float16_losses_does_not_overflow(specs):
    """The sum of these losses, 131072, is more than float16 holds; their mean is 16."""
    scores = torch.full((8192, 4), -16.0, dtype=torch.float16)
    call = Call("aten.nll_loss_forward.default", scores, integers(4, 8192), None, 1, -100, factors="")
    operator, tensors, values, strategy = under(call, specs, (2,))
    loss, count = run_sharded(operator, tensors, values, strategy, (2,))
    assert (loss.item(), count.item(), loss.dtype) == (16.0, 8192.0, torch.float16)


def test_random_shards_name_the_axes_that_enter_the_seed():
    call = Call("aten.native_dropout.default", positive(4, 8), 0.5, True, factors="")
    operator, tensors, _, strategy = under(call, ((REPLICATE, 1),), (2, 2))
    assert localize(operator, tensors, strategy, (2, 2), (0, 1)).draws == (1,)


@st.composite
def reshapes(draw):
    """Two shapes of equally many elements, made by grouping and splitting prime factors, with ones thrown in."""
    primes = draw(st.lists(st.sampled_from((2, 2, 2, 3)), min_size=1, max_size=6))

    def grouped():
        shape = [1]
        for prime in primes:
            if draw(st.booleans()):
                shape.append(1)
            shape[-1] *= prime
        for _ in range(draw(st.integers(0, 2))):
            shape.insert(draw(st.integers(0, len(shape))), 1)
        return tuple(shape)

    return grouped(), grouped()


@given(reshapes())
def test_a_sharding_before_a_reshape_is_a_sharding_after_it(shapes):
    source, target = shapes
    x = torch.arange(torch.Size(source).numel()).reshape(source)
    for before, after, size in regrouped(source, target):
        for count in (n for n in range(2, size + 1) if size % n == 0):
            cut = [piece.contiguous() for piece in x.chunk(count, before)]
            expected = x.reshape(target).chunk(count, after)
            assert len(expected) == count
            assert all(torch.equal(a.flatten(), b.flatten()) for a, b in zip(cut, expected, strict=True))


@given(reshapes())
def test_a_leading_dim_that_a_reshape_keeps_can_be_sharded(shapes):
    """Completeness: with an equal dim in front (and one behind) whatever else is regrouped, both can be sharded."""
    source, target = shapes
    pairs = regrouped((4, *source, 6), (4, *target, 6))
    assert (0, 0, 4) in pairs
    assert (len(source) + 1, len(target) + 1, 6) in pairs
