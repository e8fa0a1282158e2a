"""Tuning constants of this room: sizes of tables. None of them changes a result, up to ties between equal costs."""

MAX_NEW_TABLE_ENTRIES = 1 << 22
"""`simplify` keeps a node of degree two when the edge that would replace it had more entries than this (32 MiB). Set by
hand; halved or doubled it changes the time of benchmarks/tuning_constants.py by less than 7 %."""

JOIN_BROADCAST_ENTRIES = 1 << 17
"""Up to this many entries a join is one broadcast sum (1 MiB); beyond it the strategies are taken one by one, in
blocks. Set by hand; halved or doubled it changes the time of benchmarks/tuning_constants.py by less than 7 %."""

JOIN_BLOCK_ENTRIES = 1 << 15
"""Entries of the result of a join that are worked on at a time, so that they stay in the cache (256 KiB). Set by hand;
halved or doubled it changes the time of benchmarks/tuning_constants.py by less than 7 %."""
