"""Calls that a model makes, replaced while it is traced: by one operator, or by others that have a shape.

attention     torch's attention, by the operator of `tracing.attention`; what is read and written at places of a mask
huggingface   attention with windows, sinks or soft caps in models of transformers, by that operator
norms         torch's RMS norm, by the operator of `tracing.fused.rms_norm`
experts       routed experts, by the operator of `tracing.experts`
recurrence    torch's LSTM, GRU and RNN, by products and the operators of `tracing.fused.recurrence`
linear_scans  RWKV's time mix and Mamba's selective scan, by the operators of `tracing.fused`
scan          torch's scan, by the operator of `tracing.fused.scan`, or by a loop over its steps
scan_body, scan_surroundings   the operators of its steps; what these read from around them
ctc           torch's ctc_loss, by the operator of `tracing.fused.ctc`
bags          torch's embedding_bag, by a lookup and a sum
"""
