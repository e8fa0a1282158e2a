"""Functions of torch that are one operator each, forward and backward.

    rms_norm   RMS norm
    ctc        the CTC loss
    recurrence the steps of an LSTM, a GRU or a plain RNN
    scan       torch's scan: the operators of a step, again and again
    wkv        the time mix of RWKV
    selective_scan   the selective scan of Mamba

They import the graph, `tracing.symbols` and torch.
"""
