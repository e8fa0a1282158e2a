"""Lower bounds of stage costs without a solve: `lower_bounds`, corrected for pending sums by `entering_sums`."""
