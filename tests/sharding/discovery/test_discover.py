"""Discovery: the splits it establishes pass the same proof as those of the rules, and equal them."""

import ctypes
import os
from dataclasses import replace

import pytest
import torch

from alpa_explore.graph import Operator, Phase, Ref, Tensor, TensorKind
from alpa_explore.sharding.discovery.discover import discover
from alpa_explore.sharding.local.local_call import LOCAL_RULES
from alpa_explore.sharding.rules import RULES
from alpa_explore.sharding.spec import PARTIAL, REPLICATE
from alpa_explore.sharding.splits import splits_for
from tests.sharding.call import Call, integers, positive, real
from tests.sharding.examples import movements, pointwise, products, statistics
from tests.sharding.proof import prove_splits

CONSTANT = {
    "aten.zeros_like.default",
    "aten.ones_like.default",
    "aten.full_like.default",
    "aten.fill.Scalar",
    "aten.fill.Tensor",
    "aten.arange.default",
    "aten.scalar_tensor.default",
}
"""Their result does not depend on values: running shards of it proves nothing, so discovery declines."""
NOT_RUN = {"aten._grouped_mm.default"}
"""Kernels for bfloat16 alone, whose integers must be ends of rows."""
TOO_LONG = {"alpa_explore.selective_scan_backward.default"}
"""Discovery tries combinations of the dims of all inputs: ten take more than its minute on a busy machine. Rules of all
kinds are proven in `tests/sharding/test_rules.py`."""
RULED = [
    call
    for call in (*products.CALLS, *pointwise.CALLS, *movements.CALLS, *statistics.CALLS)
    if call.kind in RULES.keys() - TOO_LONG and not call.kind.startswith(("optimizer.", "constant."))
]
FIRST = list({call.kind: call for call in RULED}.values())
QUICK = FIRST[::4]
"""Every fourth kind, once, for the default tier; all calls for the slow one."""


OPERATOR = Operator(index=0, name="o", kind="", phase=Phase.FORWARD, inputs=(0,), outputs=(1,), arguments=(Ref(0),))


def tensor(index, shape, dtype="float32"):
    return Tensor(index=index, name="t", shape=shape, dtype=dtype, kind=TensorKind.VALUE, producer=None)


def unrun(kind, shape):
    """What discovery returns for x -> y of one shape; the test itself does not run the operator."""
    return discover(replace(OPERATOR, kind=kind), [tensor(0, shape), tensor(1, shape)])


def discovered(call):
    """(discovery, operator, tensors, values)."""
    operator, tensors, values = call.build()
    return discover(operator, tensors), operator, tensors, values


def rediscover(call):
    """Every discovered split is valid, and the splits of a rule whose operator runs unchanged on shards are all
    discovered."""
    result, operator, tensors, values = discovered(call)
    prove_splits(result.splits, operator, tensors, values, meshes=((2,), (2, 2)))
    assert bool(result.splits) != bool(result.reason)
    if call.kind not in LOCAL_RULES and call.kind not in CONSTANT | NOT_RUN and operator.inputs:
        ours = {
            (s.inputs, s.outputs, s.divides)
            for s in RULES[call.kind](
                operator, tuple(tensors[t] for t in operator.inputs), tuple(tensors[t] for t in operator.outputs)
            )
        }
        assert ours <= {(s.inputs, s.outputs, s.divides) for s in result.splits}, result.reason


@pytest.mark.sweep(kept=5, in_turn=True)
@pytest.mark.slow
@pytest.mark.parametrize("call", QUICK, ids=str)
def test_the_splits_of_a_rule_are_rediscovered(call):
    rediscover(call)


@pytest.mark.sweep(kept=8, in_turn=True)
@pytest.mark.slow
@pytest.mark.parametrize("call", [c for c in RULED if c not in QUICK], ids=str)
def test_the_splits_of_every_rule_are_rediscovered(call):
    rediscover(call)


def test_more_than_forty_kinds_are_rediscovered_by_default():
    assert len({call.kind for call in QUICK}) > 40


R, P = REPLICATE, PARTIAL


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        (Call("aten.mm.default", real(8, 8), real(8, 8), factors=""), {((0, R), 0), ((R, 1), 1), ((1, 0), P)}),
        (
            Call("aten.bmm.default", real(4, 8, 4), real(4, 4, 8), factors=""),
            {((0, 0), 0), ((1, R), 1), ((R, 2), 2), ((2, 1), P)},
        ),
        (Call("aten.sum.dim_IntList", real(4, 8), [1], factors=""), {((0,), 0), ((1,), P), ((P,), P)}),
        (Call("aten.amax.default", real(4, 8), [1], factors=""), {((0,), 0)}),
        (Call("aten._softmax.default", real(4, 8), 1, False, factors=""), {((0,), 0)}),
        (Call("aten.cumsum.default", real(4, 8), 1, factors=""), {((0,), 0), ((P,), P)}),
        (Call("aten.relu.default", real(4, 8), factors=""), {((0,), 0), ((1,), 1)}),
    ],
    ids=str,
)
def test_exactly_the_legal_splits_are_discovered(call, expected):
    result, *_ = discovered(call)
    assert {(s.inputs, s.outputs[0]) for s in result.splits} == expected


x, row, image = real(4, 8, 16), real(16), real(4, 16, 4, 4)
ALL, IMAGE = "dim0 dim1 dim2", "dim0 dim1 dim2 dim3 sum"
UNRULED = [
    Call("aten.logcumsumexp.default", x, 1, factors="dim0 dim2"),
    Call("aten.cumprod.default", x, 2, factors="dim0 dim1"),
    Call("aten.cummax.default", x, 0, factors="dim1 dim2"),
    Call("aten.hypot.default", x, row, factors=ALL),
    Call("aten.xlogy.Tensor", positive(4, 8), positive(4, 8), factors="dim0 dim1"),
    Call("aten.linalg_cross.default", real(8, 3), real(8, 3), factors="dim0"),
    Call("aten.linalg_vector_norm.default", x, 2, [2], factors="dim0 dim1"),
    Call("aten.linalg_inv_ex.default", real(8, 4, 4), factors="dim0"),
    Call("aten.mv.default", real(4, 8), real(8), factors="dim0 over1"),
    Call("aten.dot.default", real(8), real(8), factors="over0"),
    Call("aten.glu.default", x, -1, factors="dim0 dim1"),
    Call("aten.mode.default", x, 1, factors="dim0 dim1"),
    Call("aten.kthvalue.default", x, 3, 2, factors="dim0 dim1"),
    Call("aten.logaddexp.default", x, row, factors=ALL),
    Call("aten.roll.default", x, [3], [1], factors="dim0 dim2 sum"),
    Call("aten.diag_embed.default", real(4, 8), factors="dim0 sum"),
    Call("aten.diagonal_copy.default", real(4, 4, 8), 0, 0, 1, factors="dim0 sum"),
    Call("aten.pixel_shuffle.default", image, 2, factors=IMAGE),
    Call("aten.channel_shuffle.default", real(4, 8, 2), 2, factors="dim0 dim2 sum"),
    Call("aten.upsample_nearest2d.vec", image, None, [2.0, 2.0], factors=IMAGE),
    Call("aten.im2col.default", image, [2, 2], [1, 1], [0, 0], [2, 2], factors="dim0 dim1 sum"),
    Call("aten.take_along_dim.default", x, integers(8, 4, 8, 16), 1, factors=f"{ALL} sum"),
    Call("aten.scatter_reduce.two", real(8, 4), 1, integers(4, 8, 4), real(8, 4), "sum", factors="dim0 sum"),
    Call("aten.renorm.default", real(4, 8), 2, 0, 1.0, factors="dim0"),
]


@pytest.mark.sweep(kept=8, in_turn=True)
@pytest.mark.slow
@pytest.mark.parametrize("call", UNRULED, ids=str)
def test_an_operator_without_a_rule_is_discovered_and_proven(call):
    assert call.kind not in RULES, "choose another kind: this one has a rule now"
    found, operator, tensors, values = discovered(call)
    coverage = splits_for(replace(operator, discovered=found), tensors)
    assert (coverage.how, coverage.reason) == ("discovered", "")
    assert sorted(s.factor for s in coverage.splits) == call.factors
    assert prove_splits(coverage.splits, operator, tensors, values) == set(call.factors)


# --- operators of a library: some are valid, some misbehave


def define(name, function, shape=torch.empty_like, mutates=()):
    torch.library.custom_op(f"alpa_explore_tests::{name}", function, mutates_args=mutates).register_fake(shape)


def swiglu(x: torch.Tensor, gate: torch.Tensor) -> torch.Tensor:
    return x * torch.nn.functional.silu(gate)


def mixed(x: torch.Tensor) -> torch.Tensor:
    """Every element depends on every other."""
    return x + x.sum() ** 2


def window(x: torch.Tensor, width: int) -> torch.Tensor:
    """Adds the element `width` positions before; no effect when the dim is shorter than that."""
    return x + torch.nn.functional.pad(x, (0, 0, width, 0))[: x.shape[0]]


def noisy(x: torch.Tensor) -> torch.Tensor:
    return x + torch.rand_like(x)


def forgetful(x: torch.Tensor) -> torch.Tensor:
    return x * float(os.urandom(1)[0])


def secretly_in_place(x: torch.Tensor) -> torch.Tensor:
    x.add_(1)
    return x.clone()


def openly_in_place(x: torch.Tensor) -> torch.Tensor:
    x.add_(1)
    return x.clone()


def deadly(x: torch.Tensor) -> torch.Tensor:
    ctypes.string_at(0)
    return x.clone()


def deadly_in_halves(x: torch.Tensor) -> torch.Tensor:
    """Like a kernel without bounds checks: it crashes on short rows."""
    if x.shape[1] % 8 and x.shape[1] % 6:
        ctypes.string_at(0)
    return x * 2


def constant(x: torch.Tensor) -> torch.Tensor:
    return torch.full_like(x, 3)


def failing(x: torch.Tensor) -> torch.Tensor:
    raise ValueError("no kernel for you")


for _function in (
    swiglu,
    mixed,
    window,
    noisy,
    forgetful,
    secretly_in_place,
    deadly,
    deadly_in_halves,
    constant,
    failing,
):
    define(_function.__name__, _function, lambda x, *_: torch.empty_like(x))
define("openly_in_place", openly_in_place, mutates=("x",))


def of(name, *arguments):
    return Call(f"alpa_explore_tests.{name}.default", *arguments, factors="")


@pytest.mark.parametrize(
    ("call", "factors"),
    [
        (of("swiglu", real(4, 8), real(4, 8)), ["dim0", "dim1"]),
        (of("window", real(64, 8), 40), ["dim1", "sum"]),
        (of("deadly_in_halves", real(4, 24)), ["dim0", "sum"]),
    ],
    ids=str,
)
def test_an_operator_of_a_library_is_discovered(call, factors):
    result, operator, tensors, values = discovered(call)
    assert sorted(s.factor for s in result.splits) == factors
    prove_splits(result.splits, operator, tensors, values)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("mixed", "no sharding of its inputs"),
        ("noisy", "random numbers"),
        ("forgetful", "another result each time"),
        ("secretly_in_place", "writes into its inputs"),
        ("constant", "does not depend on its inputs"),
    ],
)
def test_an_operator_that_cannot_be_divided_has_a_reason(name, reason):
    result, *_ = discovered(of(name, real(4, 8)))
    assert result.splits == ()
    assert reason in result.reason


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("failing", "no kernel for you"),
        ("deadly", "crashed"),
        ("openly_in_place", "writes into its inputs"),
        ("unheard_of", "imported?"),
    ],
)
def test_an_operator_that_cannot_be_run_has_a_reason(name, reason):
    result = unrun(f"alpa_explore_tests.{name}.default", (4, 8))
    assert result.splits == ()
    assert reason in result.reason


@pytest.mark.parametrize("kind", ["aten.bernoulli.default", "aten.poisson.default", "aten.rand_like.default"])
def test_random_operators_are_not_supported(kind):
    assert "random" in unrun(kind, (4, 8)).reason


def test_a_shape_that_depends_on_values_is_not_supported():
    operator = replace(OPERATOR, kind="aten.nonzero.default")
    result = discover(operator, [tensor(0, (4, 8)), tensor(1, (32, 2), "int64")])
    assert "depends on values" in result.reason


def test_equal_operators_are_run_once_and_different_ones_are_distinguished():
    clamps = [replace(OPERATOR, kind="aten.clamp.default", arguments=(Ref(0), low)) for low in (1, 1.0, True, 1)]
    tensors = [tensor(0, (4, 8)), tensor(1, (4, 8))]
    assert discover(clamps[0], tensors) is discover(clamps[3], tensors)
    assert discover(clamps[0], tensors) is not discover(clamps[1], tensors)


def test_the_random_state_of_the_process_is_not_changed():
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    unrun("alpa_explore_tests.noisy.default", (2, 8))
    assert torch.equal(torch.rand(3), expected)


def test_large_shapes_are_proven_on_small_ones():
    operator = replace(OPERATOR, kind="aten.logsumexp.default", arguments=(Ref(0), (2,)))
    result = discover(operator, [tensor(0, (1024, 4096, 51200)), tensor(1, (1024, 4096))])
    assert [(s.factor, s.size) for s in result.splits] == [("dim0", 1024), ("dim1", 4096)]
