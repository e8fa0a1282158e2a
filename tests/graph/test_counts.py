"""Counts by formula against torch's own FLOP counter and against counts by hand."""

import math

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from alpa_explore.graph import Ref, Tensor, TensorKind, counts
from alpa_explore.tracing.capture import capture


def tensor(index, *shape, dtype="float32"):
    return Tensor(index=index, name=f"t{index}", shape=shape, dtype=dtype, kind=TensorKind.VALUE, producer=None)


@pytest.mark.parametrize(
    "model",
    [
        nn.Linear(8, 5),
        nn.Conv2d(8, 6, 3, stride=2, padding=1),
        nn.Conv1d(8, 6, 5, dilation=2),
        nn.ConvTranspose2d(8, 6, 3, stride=2),
    ],
    ids=lambda m: str(m).split("(")[0],
)
def test_products_count_what_torch_counts(model):
    shape = {nn.Linear: (4, 8), nn.Conv1d: (4, 8, 20)}.get(type(model), (4, 8, 9, 9))
    x = torch.randn(*shape)
    graph = capture(nn.Sequential(nn.Identity(), model), x, loss=lambda output: output.square().sum())
    counter = FlopCounterMode(display=False)
    with counter:
        model(x).square().sum().backward()
    counted = sum(o.flops for o in graph.operators if counts.is_matrix_product(o.kind))
    assert counted == counter.get_total_flops()


def test_a_grouped_convolution_counts_only_the_weights_of_its_group():
    # torch's counter counts the weight gradient of a grouped convolution as if it were ungrouped.
    graph = capture(nn.Conv2d(8, 8, 3, groups=4, bias=False), torch.randn(4, 8, 9, 9), loss=lambda output: output.sum())
    products = [o.flops for o in graph.operators if counts.is_matrix_product(o.kind)]
    assert products == [2 * (4 * 8 * 7 * 7) * (2 * 3 * 3)] * 2


def test_views_and_movement_count_no_flops():
    whole, part = tensor(0, 4, 6), tensor(1, 4, 3)
    assert counts.flops("aten.slice.Tensor", [whole], [part]) == 0
    assert counts.bytes_accessed("aten.slice.Tensor", [whole], [part]) == 0
    assert counts.flops("aten.clone.default", [whole], [whole]) == 0
    assert counts.bytes_accessed("aten.clone.default", [whole], [tensor(1, 4, 6)]) == 2 * 96


def test_elementwise_counts_its_output_and_a_reduction_its_input():
    row, whole = tensor(0, 6), tensor(1, 4, 6)
    assert counts.flops("aten.add.Tensor", [row, row], [whole]) == 24
    assert counts.flops("aten.sum.dim_IntList", [whole], [row]) == 24


def test_a_tensor_read_twice_counts_once_in_the_bytes():
    whole = tensor(0, 4, 6)
    assert counts.bytes_accessed("aten.mul.Tensor", [whole, whole], [tensor(1, 4, 6)]) == 2 * 96


def test_an_embedding_reads_rows_not_the_table():
    table, ids, rows = tensor(0, 1000, 8), tensor(1, 2, 3, dtype="int64"), tensor(2, 2, 3, 8)
    assert counts.bytes_accessed("aten.embedding.default", [table, ids], [rows]) == 2 * rows.bytes + ids.bytes


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_complex_numbers_count_as_the_real_ones_that_they_are(dtype):
    """A complex product of numbers, with its addition, is four real ones; a sum of numbers two."""
    left, right, made = (tensor(i, *shape, dtype=dtype) for i, shape in enumerate(((3, 5), (5, 7), (3, 7))))
    assert counts.flops("aten.mm.default", [left, right], [made]) == 4 * 2 * 3 * 5 * 7
    assert counts.flops("aten.add.Tensor", [made, made], [made]) == 2 * 21
    real = tensor(3, 3, 7)
    assert counts.flops("aten.abs.default", [made], [real]) == 2 * 21
    assert counts.flops("aten.clone.default", [made], [made]) == 0


@pytest.mark.filterwarnings("ignore:Complex modules")
def test_a_complex_product_counts_four_real_ones_and_a_convolution_the_three_that_torch_computes():
    def flops(module, x):
        graph = capture(module, x, loss=lambda y: y.abs().square().sum())
        return sum(o.flops for o in graph.operators if counts.is_matrix_product(o.kind))

    conv = nn.Conv2d(4, 6, 3, bias=False)
    for layer, shape, products in ((nn.Linear(8, 5, bias=False), (4, 8), 4), (conv, (2, 4, 9, 9), 3)):
        real = flops(layer, torch.randn(shape))
        assert flops(layer.to(torch.complex64), torch.randn(shape, dtype=torch.complex64)) == products * real > 0


def test_fourier_transforms_count_five_n_log_n_and_of_real_numbers_half_of_it():
    whole, half = tensor(0, 3, 64, dtype="complex64"), tensor(1, 3, 33, dtype="complex64")
    real = tensor(2, 3, 64)
    assert counts.flops("aten._fft_c2c.default", [whole], [whole], (Ref(0), (1,), 0, True)) == 3 * 5 * 64 * 6
    assert counts.flops("aten._fft_r2c.default", [real], [half], (Ref(2), (1,), 0, True)) == 3 * 5 * 64 * 6 // 2
    assert counts.flops("aten._fft_c2r.default", [half], [real], (Ref(1), (1,), 0, 64)) == 3 * 5 * 64 * 6 // 2
    assert counts.flops("aten._fft_c2c.default", [whole], [whole], (Ref(0), (0, 1), 0, True)) == round(
        5 * 192 * math.log2(192)
    )


def test_distances_and_factorisations_count_every_pair_and_row():
    left, right, distances = tensor(0, 2, 5, 7), tensor(1, 2, 6, 7), tensor(2, 2, 5, 6)
    matrix, side = tensor(3, 3, 8, 8), tensor(4, 3, 8, 4)
    assert counts.flops("aten._cdist_forward.default", [left, right], [distances]) == 3 * 2 * 5 * 6 * 7
    assert (
        counts.flops("aten._cdist_backward.default", [distances, left, right, distances], [left]) == 3 * 2 * 5 * 6 * 7
    )
    assert counts.flops("aten.linalg_inv_ex.default", [matrix], [matrix]) == 2 * 3 * 8**3
    assert counts.flops("aten.linalg_cholesky_ex.default", [matrix], [matrix]) == 8**3
    assert counts.flops("aten.linalg_lu_solve.default", [matrix, side, side], [side]) == 2 * 3 * 8 * 8 * 4
