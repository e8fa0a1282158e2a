"""Megatron layouts of GPT on a machine: seconds of an iteration from a handful of figures of the machine."""
