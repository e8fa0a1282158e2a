"""Limits on files, which come from strangers. Set by hand; not measured."""

MAX_JSON_BYTES = 256 * 2**20
"""Bytes of the JSON text after decompression."""
MAX_TIME = 10**7
"""No interval may end later: the memory profile has an entry for every time."""
