"""The constants of the fit of figures to measured runs. Set by hand unless a reason is given."""

SPREADS = {
    "measured_single_node": 0.05,
    "measured_multi_node": 0.03,
    "nanotron_playbook_h100": 0.12,  # the same layout run twice differs by 6 % in the median
    "bigscience_bloom_a100": 0.05,
    "dgxc_nemo_h100_gb200": 0.04,  # printed with three digits, of clusters that are set up with care
    "nemo_2407_h100": 0.05,
}
"""Source -> relative error that is expected of its times: an error of that size weighs as much in every source."""
SPREAD = 0.06
"""Of all other sources."""
PRIOR = 0.15
"""Weight that holds the logarithm of a figure near its start: an e-fold costs as much as 15 % of the error that is
expected of one run. It decides alone on figures that no run tells."""
DIFFERENCE = 1e-3
"""Step of a logarithm for derivatives."""
FIRST_DAMPING = 1e-2
LESS_DAMPING = 4.0
"""Divisor of the damping after a step that lowers the error."""
MORE_DAMPING = 5.0
"""Factor after one that does not."""
LEAST_DAMPING = 1e-6
LONGEST_STEP = 0.7
"""Of a logarithm, in one iteration: a factor of two."""
TRIES = 8
"""Dampings tried in an iteration."""
ITERATIONS = 40
LEAST_GAIN = 1e-3
"""The fit ends with so many iterations in turn that lower the error by a smaller share each: a short step, after some
that failed, is no end."""
PATIENCE = 3
NEAR_BOUND = 0.02
"""A figure within this share of a bound counts as at the bound."""
ENOUGH_MFU = {"nanotron_playbook_h100": 0.15}
"""Source -> MFU below which its runs are left out: something else than arithmetic and links limits them, the known
fault of that version of nanotron among it."""
DIGITS = 4
"""Of figures that are written to files."""
