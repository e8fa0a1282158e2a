"""Tracing: a PyTorch model and example inputs -> the TrainingGraph of one training step.

Models are traced through AOTAutograd's joint graph on fake tensors, so a model of any size takes no memory. In the
order to read them:

    inputs/        what is traced: example inputs, fake parameters, losses, ONNX files
    joint_graph/   the joint graph of forward and backward, with source locations; errors while tracing
    autocast       regions of torch.autocast in a model, as written on every machine
    operators/     the nodes of the joint graph -> operators with phases -> TrainingGraph
    capture        `capture`: the steps above in order
    resizing/      a graph at another batch size (`rescale`), or with more blocks (`unroll`), without another capture
    batches        one model at every batch size
    catalogue      captured graphs of catalogue models, kept on disk
    attention, experts, fused   attention; routed experts; RMS norm, the CTC loss, torch's scan,
                                recurrences of LSTM, GRU, RNN, RWKV and Mamba: one operator each, forward and backward
    custom      functions as operators of torch: schema, shapes, gradients
    attention_blocks   attention to a block of the keys at a time, merged
    symbols        arguments of ATen calls as frozen values and back
    aten           ATen calls as Operators and back; running an Operator on real tensors
    evaluate       running a whole graph on real tensors; mean losses over targets of all microbatches
    optimizers, cancelling   the optimizers that a plan can have; cancelling a capture

A model that repeats blocks is captured with a few periods of them and unrolled: a catalogue model by `periods`
of its config; any other module where the calls of its whole forward pass are those that the shorter ones determine
(`resizing.fewer_blocks`). If the two captures do not determine the rest, the whole model is captured, in time
proportional to its blocks. The only packages below are `models`, `cluster` (for the names of precisions), `graph`,
`numerics`, `store`, `units` and `errors`.

Concepts that others use: Batches, Loss.
"""
