"""Constants set by hand, with their reasons."""

MOST_COLLECTIONS = 12_000
"""Collections of pieces that are looked at to decide whether sizes tile: 4,608 for 72 devices, 11,520 for 60; beyond
this the decision takes seconds, and sizes that divide each other are used."""
