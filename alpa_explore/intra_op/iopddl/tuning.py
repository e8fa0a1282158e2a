"""Limits on files, which come from strangers. Set by hand; not measured."""

MAX_JSON_BYTES = 2 * 2**30
"""Bytes of the JSON text after decompression; the largest public problem of the contest has 99 MB."""
MEMORY_FACTOR = 10
"""Free memory that reading and solving need at the most, in bytes of the text. Set by hand: the largest public problem
of the contest takes 6."""
READ_BYTES_A_SECOND = 35e6
"""Bytes of the text that one core reads in a second. Set by hand."""
MAX_TIME = 10**7
"""No interval may end later: the memory profile has an entry for every time."""
