"""The architectures of `benchmarks/architectures.py`, each a small model on the meta device and its inputs.

hugging_face   model types of `transformers`, from configs with two layers
recurrent      LSTM, GRU and plain recurrent networks, a recurrence in plain Python, temporal convolutions
vision         mixers, U-Net, residual networks, autoencoders, diffusion transformers
tabular        clicks, recommendations, graphs, fields, fully connected networks
language       transformers in plain torch and of torch's own modules, with the attention and experts of today
"""
