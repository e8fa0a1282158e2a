"""The joint graph of a model: one torch.fx graph of its forward and backward pass, traced by AOTAutograd.

    attention_calls   calls of torch's attention, replaced by the operator of `tracing.attention`
    bag_calls         calls of torch's embedding_bag, written as a lookup and a sum
    norm_calls        calls of torch's RMS norm, replaced by the operator of `tracing.rms_norm`
    expert_calls      calls of routed experts, replaced by the operator of `tracing.experts`
    flex_calls        calls of torch's flex_attention, written as attention with a mask, or as products and a softmax
    ctc_calls         calls of torch's ctc_loss, replaced by the operator of `tracing.ctc`
    masked_calls      what is read and written at the places of a mask, in forms that have a shape
    input_checks      tests of values that only refuse bad inputs, taken as passed
    known_values      values that a model makes from constants alone, which it may read while it is traced
    locate            module path, source line and torch function of each call while the model is traced
    unmerge           a rewrite of the graph that restores the batch dims of products, so that heads can be sharded
    trace             `trace`: the joint graph, its inputs, loss and gradients
    diagnose          an exception raised while tracing -> a CaptureError that names the place and a remedy

They import `tracing.attention`, `tracing.experts`, `tracing.rms_norm`, `tracing.cancelling`, `models`, `errors` and
torch; not `tracing.operators`.
"""
