"""Functions of torch that are one operator each, forward and backward.

    rms_norm   RMS norm
    ctc        the CTC loss

They import the graph and torch.
"""
