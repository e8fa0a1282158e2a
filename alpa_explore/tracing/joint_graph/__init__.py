"""The joint graph of a model: one torch.fx graph of its forward and backward pass, traced by AOTAutograd.

    calls/            calls of torch and of transformers, replaced by one operator or written in other ones
    input_checks      tests of values that only refuse bad inputs, taken as passed; values that a model makes from
                      constants alone, which it may read while it is traced
    checkpoints       the modules that a model recomputes by `torch.utils.checkpoint`
    locate            module path, source line and torch function of each call while the model is traced; batch dims
                      of products restored, so that heads can be sharded
    trace             `trace`: the joint graph, its inputs, loss and gradients
    step_calls        the ATen calls of the forward and backward pass, not traced
    diagnose          an exception raised while tracing -> a CaptureError that names the place and a remedy

They import `tracing.attention`, `tracing.experts`, `tracing.fused`, `tracing.cancelling`, `models`, `errors` and
torch; not `tracing.operators`.
"""
