"""Decoders after Llama, made of options: Qwen3, Mixtral, DeepSeek-V3, GPT-OSS. In the order to read them:

experts     the feed-forward of experts: gates, and the routed experts behind one function
attention   grouped keys with norms, biases, windows and sinks; latent attention
decoder     blocks, the model and its loss
"""
