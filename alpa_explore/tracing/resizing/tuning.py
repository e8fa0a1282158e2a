"""Constants of the package."""

WORTH_SHORTENING = 0.6
"""A model is captured with fewer blocks where both captures together trace at most this share of its modules. Set by
hand: the calls of all blocks are recorded beside them, in about a sixth of the time of a capture."""
