"""Views, concatenations, slices, lookups by index."""

import torch

from tests.sharding.call import Call, integers, mask, real

x = real(4, 8, 16)
whole_numbers = integers(9, 4, 8)
table, tokens = real(16, 8), integers(16, 4, 8)


def aten(kind, *arguments, factors, **keywords):
    return Call(f"aten.{kind}", *arguments, factors=factors, **keywords)


ALL = "dim0 dim1 dim2 sum"
CALLS = (
    # a sharding follows the leading dim of each group
    aten("view.default", x, [32, 16], factors="dim0 dim2 inner-dim1 sum"),
    aten("view.default", x, [32, 4, 4], factors="dim0 dim2 inner-dim1 sum"),
    aten("view.default", real(32, 16), [4, 8, 4, 4], factors="dim0 dim1 inner-dim1 sum"),
    aten("view.default", x, [4, 8, 4, 4], factors=ALL),
    aten("view.default", x, [4, 128], factors="dim0 dim1 sum"),
    aten("view.default", x, [8, 64], factors="dim0 sum"),
    aten("view.default", real(1, 8, 4), [8, 1, 4], factors="dim1 dim2 sum"),
    aten("view.default", real(6, 4), [4, 6], factors="dim0 sum"),
    aten("view.default", whole_numbers, [-1], factors="dim0 inner-dim1"),
    aten("view.default", real(0, 4), [4, 0], factors="sum"),
    aten("_unsafe_view.default", x, [32, 16], factors="dim0 dim2 inner-dim1 sum"),
    aten("reshape.default", x, [4, -1], factors="dim0 dim1 sum"),
    aten("unsqueeze.default", x, 1, factors=ALL),
    aten("unbind.int", x, factors="dim1 dim2 sum"),
    aten("unbind.int", x[..., :3], -1, factors="dim0 dim1 sum"),
    aten("unbind.int", tokens, 1, factors="dim0"),
    aten("bucketize.Tensor", tokens, torch.arange(0, 16, 2), right=True, factors="dim0 dim1"),
    aten("searchsorted.Tensor", torch.arange(0, 16, 2), tokens, factors="dim0 dim1"),
    aten("searchsorted.Tensor", torch.arange(32).view(4, 8), tokens, factors="dim0"),
    aten("squeeze.dim", real(4, 1, 8), 1, factors="dim0 dim2 sum"),
    aten("squeeze.dim", real(4, 8), 0, factors="dim0 dim1 sum"),
    aten("squeeze.dims", real(4, 1, 8), [0, 1], factors="dim0 dim2 sum"),
    aten("squeeze.default", real(4, 1, 8), factors="dim0 dim2 sum"),
    aten("permute.default", x, [2, 0, -2], factors=ALL.replace("dim0 dim1 dim2", "dim2 dim0 dim1")),
    aten("transpose.int", x, 0, -1, factors="dim2 dim1 dim0 sum"),
    aten("t.default", real(4, 8), factors="dim1 dim0 sum"),
    aten("expand.default", real(4, 1, 8), [8, 4, 8, -1], factors="dim0 dim0 dim2 dim2 sum"),
    aten("flip.default", x, [1], factors="dim0 dim2 sum"),
    # parts of a dim
    aten("split.Tensor", x, 4, -1, factors="dim0 dim1 sum"),
    aten("split.Tensor", x, 3, factors="dim1 dim2 sum"),
    aten("split_with_sizes.default", x, [2, 6], 1, factors="dim0 dim2 sum"),
    aten("cat.default", [x, real(4, 8, 3)], -1, factors="dim0 dim1 sum"),
    aten("cat.default", [real(0), real(4, 8)], factors="dim1 sum"),
    aten("cat.default", [whole_numbers, whole_numbers], 1, factors="dim0"),
    aten("stack.default", [x, real(4, 8, 16)], 1, factors=ALL),
    aten("stack.default", [real(8), real(8)], -1, factors="dim0 sum"),
    aten("select.int", x, 1, 3, factors="dim0 dim2 sum"),
    aten("select_backward.default", real(4, 16), [4, 8, 16], -2, 3, factors="dim0 dim1 sum"),
    aten("select_scatter.default", x, real(4, 16), 1, 3, factors="dim0 dim2 sum"),
    aten("slice.Tensor", x, 1, 2, 6, factors="dim0 dim2 sum"),
    aten("slice.Tensor", x, 0, 0, 9223372036854775807, factors="dim1 dim2 sum"),
    aten("slice_backward.default", real(4, 4, 16), [4, 8, 16], 1, 2, 6, 1, factors="dim0 dim2 sum"),
    aten("slice_scatter.default", x, real(4, 4, 16), 1, 2, 6, factors="dim0 dim2 sum"),
    aten("constant_pad_nd.default", x, [0, 1], 2.0, factors="dim0 dim1"),
    aten("constant_pad_nd.default", x, [0, 0, 1, -1], factors="dim0 dim2"),
    aten("constant_pad_nd.default", x, [-8, 0], factors="dim0 dim1"),
    aten("repeat.default", real(1, 8), [4, 1], factors="dim1"),
    aten("repeat.default", real(4, 8), [3, 1, 2], factors="dim0"),
    # lookups
    aten("embedding.default", table, tokens, factors="dim0 dim1 hidden vocabulary"),
    aten("embedding.default", table, integers(16), 3, factors="hidden vocabulary"),
    aten(
        "embedding_dense_backward.default", real(4, 8, 8), tokens, 16, -1, False, factors="dim0 dim1 hidden vocabulary"
    ),
    aten(
        "embedding_dense_backward.default", real(4, 8, 8), tokens, 16, 5, False, factors="dim0 dim1 hidden vocabulary"
    ),
    aten("embedding_dense_backward.default", real(4, 8, 8), tokens, 16, -1, True, factors="hidden"),
    aten("gather.default", x, 1, integers(8, 4, 4, 16), factors="dim0 dim2 dim1"),
    aten("gather.default", x, -1, integers(16, 2, 8, 16), factors="dim1 dim2"),
    aten("scatter.src", real(8, 4), -1, integers(4, 8, 1), real(8, 1), factors="dim0"),
    aten("scatter.value", real(8, 4), 1, integers(4, 8, 2), 3.0, factors="dim0"),
    aten("scatter_add.default", real(8, 4), 1, integers(4, 8, 4), real(8, 4), factors="dim0"),
    aten("index_select.default", x, 1, integers(8, 12), factors="dim0 dim0 dim2"),
    aten("index_add.default", x, 1, integers(8, 12), real(4, 12, 16), factors="dim0 dim2 dim0"),
    aten("index.Tensor", x, [integers(4, 8)], factors="dim1 dim2 dim0"),
    aten("index.Tensor", x, [integers(4, 8, 1), integers(8, 1, 4)], factors="dim2 dim0 dim1"),
    aten("index.Tensor", x, [None, integers(8, 4)], factors="dim0 dim2 dim0"),
    aten("index.Tensor", x, [integers(4, 8), None, integers(16, 8)], factors=""),
    aten("index.Tensor", real(4, 8), [mask(4)], factors=""),
    aten("index_put.default", x, [None, torch.tensor([1, 5, 2, 0])], real(4, 4, 16), factors="dim0 dim2"),
    aten("index_put.default", x, [None, integers(8, 12)], real(4, 12, 16), True, factors="dim0 dim2 dim0"),
    aten("index_put.default", x, [integers(4, 8), integers(8, 8)], real(16), True, factors="dim2 dim0"),
    aten("index_put.default", integers(9, 8), [integers(8, 4)], integers(9, 4), True, factors="dim0"),
    aten("index_put.default", real(8), [torch.randperm(8)], real(8), factors=""),
)
