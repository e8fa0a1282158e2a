"""How large random plans are, and how hard a failing one is shrunk. Set by hand unless said otherwise."""

TOLERANCE = 1e-5
"""Largest relative error of a plan in float32 (`runtime.reference`), as for `verify`."""
MOST_ROUNDING = 1e-4
"""A relative error above the tolerance and up to this may be rounding: the same plan is run in float64."""
TOLERANCE_IN_FLOAT64 = 1e-10
"""Largest relative error of a gradient or weight there. Rounding is 1e-9 of what it is in float32, a fault as large."""
STEPS = 2
"""Optimizer steps of a plan: the second one shows wrong weights and wrong optimizer state of the first."""
MOST_DEVICES = 8
"""Devices of a plan. Eight are enough for three axes, and for four submeshes of unlike sizes."""
MOST_STAGES = 4
"""Submeshes of a plan."""
MOST_MICROBATCHES = 6
"""More than the deepest pipeline, so that every schedule has a steady phase."""
RECOMPUTED_LAYERS, RECOMPUTED_BLOCKS = 0.2, 0.3
"""Shares of the plans that recompute some of their layers, and parts of their blocks."""
ATTEMPTS = 20
"""Draws until a draft has a legal choice for every node; one is nearly always enough."""
SHRINKING_SECONDS = 120.0
"""Processor time for shrinking one failing plan; about 300 trials of a plan of 200 operators take a minute."""
SHARE_OF_RANDOM_NODES = 0.15
"""In a sparse plan, the share of nodes that are not as near to replicated as the rules allow."""
NEAR = 3
"""In a cheap plan, from how many of the cheapest strategies one is drawn."""
MOST_SHRUNK = 8
"""Failures of one campaign that are shrunk: many failures of one campaign mostly have one cause."""
UNLIKE_SHARE = 0.3
"""Of the plans with a stage a submesh, those whose nodes are of two kinds."""
