"""Constants of the kernel formulas that are no figures of a device, and of the search for cheapest reshardings."""

TILES = ((256, 128), (128, 256), (128, 128), (128, 64), (64, 128), (64, 64))
"""(height, width) of the tiles of a product's output that libraries choose from: common shapes of cuBLAS and
CUTLASS."""
LARGEST_TILE = 256 * 128
PARTS_OF_K = (1, 2, 4)
"""Numbers of parts into which libraries divide a long k where there are few tiles."""
ATTENTION_BLOCK = 128
"""Queries that one block of fused attention computes, as FlashAttention-2 has it (arXiv 2307.08691)."""
ROOFLINE_SHARPNESS = 6.0
"""Exponent of the soft maximum of arithmetic and memory time. Set by hand; not measured."""
MOST_SPECS_OF_ALL_PAIRS = 512
"""Specs of a tensor up to which all reshardings are priced at once: a tensor of 6 dims on 3 mesh axes has so many."""
SOURCES_AT_ONCE = 16
"""Specs from which reshardings are searched together, where specs are more: a few MB."""
EFFICIENT_ATTENTION = 0.6
"""Rate of PyTorch's memory-efficient attention over that of flash attention, as xFormers measured both."""
LOOSE = ("float32", "float64")
"""Dtypes whose products do not run on matrix units of 16-byte rows: any size is as fast as a multiple of 8."""
UNALIGNED = {4: 1.0, 2: 0.6, 1: 0.35}
"""Rate of a product of 16 bits whose rows in memory are multiples of so many numbers, and not of 8, over
`KernelFigures.unaligned_share`: with 4,100, 4,097 and 50,257 columns on an H100 284, 97 and 99 TFLOP/s of 715
(tests/validation/data/on_gpu); of 2 the geometric mean."""
SCORE_BYTES, CAST_BYTES = {False: 16, True: 28}, 6
"""Attention in float32: bytes that are read and written for each score, by whether it is the backward pass (products
write and read it, the softmax reads and writes it), and for each element that is cast from 16 bits."""
MASKED_HEAD = 128
"""Heads up to which `KernelFigures.masked_attention` holds; larger ones run at `EFFICIENT_ATTENTION`."""
MASK_LAUNCHES = 4
"""Kernels that make a mask of scores, and repeat heads of keys and values."""
SPELLED_OUT = {False: (15, 10), True: (18, 14)}
"""By whether it is the backward pass: (passes over all scores, kernels) of attention with sinks that is spelled out:
products, scale, mask, sink joined, largest score, difference, softmax, and their gradients."""
CONVOLUTION_SHARE, CONVOLUTION_READS = 0.85, 1.75
"""Of cuDNN's convolutions: the rate over that of a product, and numbers that are read and written for each FLOP and
output channel, or depth of the sum, whichever is less. Fitted to both passes of a ResNet-50 on an H100 (data/gpu)."""
STEPS_IN_A_LAUNCH = 10
"""Steps of a recurrence, of two kernels each, that cuDNN launches while PyTorch launches one operator: 5 µs each of
50. Set by hand; not measured."""
DEPTHWISE_BYTES = 0.97
"""Bytes for each FLOP of a depthwise convolution, at the bandwidth of the memory. Fitted to a ConvNeXt on an H100."""
PASSES_AGAIN = {
    "aten.binary_cross_entropy_with_logits": 8 / 3,
    "aten._native_batch_norm_legit_functional": 1 / 2,
    "aten.native_batch_norm": 1 / 2,
    "aten.native_batch_norm_backward": 2 / 3,
    "aten.native_group_norm": 1 / 2,
    "aten.native_group_norm_backward": 2 / 3,
    "aten.native_layer_norm_backward": 2 / 3,
    "aten._log_softmax": 1.0,
    "aten._log_softmax_backward_data": 2 / 3,
}
"""Share of its bytes that PyTorch moves again: forward its input, of a long softmax twice; backward input and gradient.
Binary cross entropy is four kernels, which move eleven numbers for three."""
EXPERT_LAUNCHES = 20
"""Kernels around the grouped products of routed experts, in a pass."""
EXPERT_STEPS = {
    False: {"rows": 7, "bias": 5, "plain": 2, "gated": 5, "limited": 16},
    True: {"rows": 25, "bias": 10, "plain": 3, "gated": 13, "limited": 28},
}
"""By whether it is the backward pass: how often the kernels around grouped products read or write a number of a row of
tokens, of a biased result, and of an inner row by the kind of gate. Sums by sorted indices count eight times."""
KEPT_OF_GATE = {"plain": 1, "gated": 2, "limited": 5}
"""Inner rows that autograd keeps: the inner values, the activation of the gate; with limits both sides of the gate and
the factor of the activation too."""
TYPICAL_FAMILIES = 4
"""Families of timed kernels from which others of their kind and dtype follow. Of the kernels of four models on a CPU,
one whose family is left out is off by a factor of 1.8 so, and of 2.8 by the formulas alone."""
