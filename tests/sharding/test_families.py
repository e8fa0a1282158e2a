"""In each family rule and discovery are both proven on legal shapes that hypothesis chooses."""

import math

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from alpa_explore.sharding.discovery.discover import discover
from alpa_explore.sharding.rules import RULES
from alpa_explore.sharding.splits import splits_for
from tests.sharding.call import Call, integers, mask, positive, real
from tests.sharding.proof import prove_splits

EXTENTS = st.sampled_from((1, 2, 3, 4, 6, 8))
EVEN = st.sampled_from((2, 4, 8))
SHAPES = st.lists(EXTENTS, min_size=1, max_size=4).map(tuple)
MESHES = ((2,), (2, 2), (4,))


@st.composite
def pointwise(draw):
    """One, two or three operands that broadcast."""
    shape = draw(SHAPES)

    def operand(make):
        start = draw(st.integers(0, len(shape)))
        return make(*(size if draw(st.booleans()) else 1 for size in shape[start:]))

    kind, arguments = draw(
        st.sampled_from(
            [
                ("aten.exp.default", (positive,)),
                ("aten.add.Tensor", (positive, positive)),
                ("aten.mul.Tensor", (positive, positive)),
                ("aten.maximum.default", (positive, positive)),
                ("aten.where.self", (mask, positive, positive)),
                ("aten.addcmul.default", (positive, positive, positive)),
                ("aten.hypot.default", (positive, positive)),
            ]
        )
    )
    return Call(kind, *(operand(make) for make in arguments), factors="")


@st.composite
def product(draw):
    b, c, m, k, n = (draw(EXTENTS) for _ in range(5))
    return draw(
        st.sampled_from(
            [
                Call("aten.mm.default", real(m, k), real(k, n), factors=""),
                Call("aten.bmm.default", real(b, m, k), real(b, k, n), factors=""),
                Call("aten.matmul.default", real(b, c, m, k), real(b, c, k, n), factors=""),
                Call("aten.addmm.default", real(n), real(m, k), real(k, n), factors=""),
                Call("aten.baddbmm.default", real(b, m, n), real(b, m, k), real(b, k, n), factors=""),
                Call("aten.mv.default", real(m, k), real(k), factors=""),
            ]
        )
    )


@st.composite
def reduction(draw):
    shape = draw(SHAPES)
    dims = sorted(draw(st.sets(st.integers(0, len(shape) - 1), min_size=1)))
    keep, one = draw(st.booleans()), dims[0] - draw(st.sampled_from((0, len(shape))))
    return draw(
        st.sampled_from(
            [
                Call("aten.sum.dim_IntList", real(*shape), dims, keep, factors=""),
                Call("aten.mean.dim", real(*shape), dims, keep, factors=""),
                Call("aten.amax.default", real(*shape), dims, keep, factors=""),
                Call("aten.argmax.default", real(*shape), one, keep, factors=""),
                Call("aten.cumsum.default", real(*shape), one, factors=""),
                Call("aten.linalg_vector_norm.default", real(*shape), 2, dims, keep, factors=""),
            ]
        )
    )


@st.composite
def view(draw):
    shape = draw(SHAPES)
    rank = len(shape)
    order = draw(st.permutations(range(rank)))
    cut = draw(st.integers(0, rank))
    dim = draw(st.integers(0, rank - 1))
    start = draw(st.integers(0, shape[dim] - 1))
    x = real(*shape)
    return draw(
        st.sampled_from(
            [
                Call("aten.view.default", x, [math.prod(shape[:cut]), -1], factors=""),
                Call("aten.view.default", x, [*shape[:cut], 1, *shape[cut:]], factors=""),
                Call("aten.permute.default", x, order, factors=""),
                Call("aten.unsqueeze.default", x, cut, factors=""),
                Call("aten.expand.default", x, [4, *shape], factors=""),
                Call("aten.select.int", x, dim, start, factors=""),
                Call("aten.slice.Tensor", x, dim, start, shape[dim], factors=""),
                Call("aten.flip.default", x, [dim], factors=""),
            ]
        )
    )


@st.composite
def lookup(draw):
    rows, width, shape = draw(EVEN), draw(EXTENTS), draw(SHAPES.filter(lambda s: len(s) < 3))
    table, taken = real(rows, width), draw(EVEN)
    return draw(
        st.sampled_from(
            [
                Call("aten.embedding.default", table, integers(rows, *shape), factors=""),
                Call(
                    "aten.embedding_dense_backward.default",
                    real(*shape, width),
                    integers(rows, *shape),
                    rows,
                    -1,
                    False,
                    factors="",
                ),
                Call("aten.gather.default", table, 1, integers(width, rows, taken), factors=""),
                Call("aten.index_select.default", table, 0, integers(rows, taken), factors=""),
                Call("aten.index.Tensor", table, [integers(rows, *shape)], factors=""),
                Call(
                    "aten.scatter_add.default", table, 0, integers(rows, taken, width), real(taken, width), factors=""
                ),
            ]
        )
    )


@st.composite
def normalization(draw):
    shape = draw(st.lists(EXTENTS, min_size=1, max_size=3).map(tuple))
    width = draw(st.sampled_from((2, 3, 4, 8)))
    dim = draw(st.integers(0, len(shape)))
    x = real(*shape, width)
    return draw(
        st.sampled_from(
            [
                Call("aten.native_layer_norm.default", x, [width], real(width), real(width), 1e-5, factors=""),
                Call("aten.native_layer_norm.default", x, [width], None, None, 1e-5, factors=""),
                Call("aten._softmax.default", x, dim, False, factors=""),
                Call("aten._log_softmax.default", x, dim, False, factors=""),
                Call("aten._softmax_backward_data.default", x, torch.softmax(x, dim), dim, torch.float64, factors=""),
            ]
        )
    )


@st.composite
def joining(draw):
    shape = draw(SHAPES)
    dim = draw(st.integers(0, len(shape) - 1))
    other = tuple(draw(EXTENTS) if d == dim else size for d, size in enumerate(shape))
    piece = draw(st.integers(1, shape[dim]))
    x = real(*shape)
    return draw(
        st.sampled_from(
            [
                Call("aten.cat.default", [x, real(*other)], dim - draw(st.sampled_from((0, len(shape)))), factors=""),
                Call("aten.stack.default", [x, real(*shape)], dim, factors=""),
                Call("aten.split.Tensor", x, piece, dim, factors=""),
                Call("aten.split_with_sizes.default", x, [piece, shape[dim] - piece], dim, factors=""),
            ]
        )
    )


@st.composite
def convolution(draw):
    groups = draw(st.sampled_from((1, 1, 2)))
    batch, inner, outer = draw(EXTENTS), groups * draw(st.sampled_from((1, 2, 4))), groups * draw(EVEN)
    size, kernel, stride = draw(st.integers(4, 7)), draw(st.sampled_from((1, 3))), draw(st.sampled_from((1, 2)))
    bias = real(outer) if draw(st.booleans()) else None
    x, weight = real(batch, inner, size, size), real(outer, inner // groups, kernel, kernel)
    shared = ([stride] * 2, [kernel // 2] * 2, [1, 1], False, [0, 0], groups)
    if draw(st.booleans()):
        return Call("aten.convolution.default", x, weight, bias, *shared, factors="")
    dy = torch.zeros_like(torch.ops.aten.convolution(x, weight, bias, *shared))
    dy = real(*dy.shape)
    return Call(
        "aten.convolution_backward.default",
        dy,
        x,
        weight,
        [outer] if bias is not None else None,
        *shared,
        [True, True, bias is not None],
        factors="",
    )


FAMILIES = [pointwise, product, reduction, view, lookup, normalization, joining, convolution]


def prove_both(call):
    """Prove the splits of the rule, where there is one, and those of discovery."""
    operator, tensors, values = call.build()
    if call.kind in RULES:
        prove_splits(splits_for(operator, tensors).splits, operator, tensors, values, meshes=MESHES)
    prove_splits(discover(operator, tensors).splits, operator, tensors, values, meshes=MESHES)


def settings_for(examples):
    return settings(
        max_examples=examples,
        derandomize=True,
        deadline=None,
        database=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
    )


@pytest.mark.sweep(kept=4, in_turn=True)
@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES, ids=lambda f: f.__name__)
def test_rules_and_discovery_are_valid_on_shapes_that_hypothesis_chooses(family):
    settings_for(4)(given(family())(prove_both))()


@pytest.mark.sweep(kept=0)
@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES, ids=lambda f: f.__name__)
def test_rules_and_discovery_are_valid_on_many_shapes(family):
    settings_for(20)(given(family())(prove_both))()
