"""Tuning constants of this room: sizes of tables. None of them changes a result, up to ties between equal costs."""

MAX_NEW_TABLE_ENTRIES = 1 << 22
"""`simplify` keeps a node of degree two when the edge that would replace it had more entries than this (32 MiB). Set by
hand; halved or doubled it changes the time of benchmarks/tuning_constants.py by less than 7 %."""
