"""Calls that a model makes, replaced while it is traced: by one operator, or by others that have a shape.

attention     torch's attention, by the operator of `tracing.attention`; in models of transformers with
              windows, sinks or soft caps; what is read and written at places of a mask
experts       routed experts, by the operator of `tracing.experts`
functions     torch's rms_norm, ctc_loss and embedding_bag, by one operator or a few
recurrence    torch's LSTM, GRU and RNN, by products and the operators of `tracing.fused.recurrence`
linear_scans  RWKV's time mix and Mamba's selective scan, by the operators of `tracing.fused`
scan          torch's scan, by the operator of `tracing.fused.scan`, or by a loop over its steps
"""
