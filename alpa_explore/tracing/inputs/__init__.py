"""What is traced: example inputs, the model's tensors as fake tensors, the loss.

    losses       the loss of a training step, and the division of example inputs between model and loss
    example      example inputs as a flat list of named tensors, and back to a call
    fake_model   the model's parameters and buffers as fake tensors
    onnx_file    an ONNX file as a torch module

They import `errors` and torch; nothing else of `tracing`.
"""
