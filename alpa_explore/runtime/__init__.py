"""A plan on real devices: a process for each rank, launched, watched, measured and compared with one process."""
