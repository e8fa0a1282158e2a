"""Lower bounds without a solve: seconds of stages (`lower_bounds`, corrected for pending sums by `entering_sums`), and
bytes (`least_bytes`)."""
