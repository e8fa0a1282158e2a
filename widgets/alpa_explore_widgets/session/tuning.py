"""Limits and delays of a session. None changes a plan. Where no reason is given: set by hand, not measured."""

REPORT_SECONDS = 0.1
"""Least time between two progress reports that are shown: each is a message to the browser."""
POLL_SECONDS = 0.25
"""How often a training run is polled: each change is a message to the browser."""
DRIFT_SECONDS = 2.0
"""How often the drift of a run is looked at; its ranks report no more than once a second."""
DRIFT_CHANGE = 1.25
"""The better plan is looked for again when the time of a stage or link has changed by this factor."""
REST_SECONDS = 0.4
"""The planner runs once the settings that it answers have rested for this long."""
SAME_MOVE_SECONDS = 1.5
"""Replans that follow one another within this time are one movement of a slider and make one history entry."""
HISTORY_ENTRIES = 60
"""Plans kept in the history; the oldest are dropped first."""
KEPT_GRAPHS = 8
"""Captured graphs kept in memory, so that another δ or cluster, or a B of before, does not capture the model again."""
KEPT_PLANS = 12
"""Plans of this process that are kept for explorers that are shown again; one has some megabytes."""
KEPT_ANSWERS = 24
"""Answers about layouts that are kept for other values of B: as many as its slider has stops. One of ten thousand
layouts takes 5 MB."""
NEIGHBOUR_DELTAS = (0.1, 0.25, 0.5, 1.0)
"""Values of δ among which "Try neighbours" takes the next smaller and the next larger one."""
HIDDEN_SECONDS = 3.0
"""An explorer that has been on no page for this long was closed: its cell was run again or its output was cleared.
A cell that is moved is off the page for less."""
RELOAD_SECONDS = 60.0
"""The same when the whole page was left: JupyterLab may take this long to load it again."""
MOMENT_SECONDS = 0.04
"""A tab waits so long for the rest of its answer before it shows a part."""
BEFORE_FIGURES_SECONDS = 0.3
"""From a new plan or tab to the first figure that is made ahead for another B: the page is drawn meanwhile."""
PICTURE_SECONDS = 1.0
"""From another plan to the picture of it that a saved notebook shows."""
BETWEEN_FIGURES_SECONDS = 0.01
"""Between two such figures: what a key press asks for comes first."""
FIRST_FIGURES = 6
"""So many of them are sent before the others are made."""
AHEAD_SECONDS = 10.0
"""After so long no others are made until the slider comes near them."""
NEAR_FIGURES = 5
"""So many of the stops nearest to B are near: itself, and two on each side."""
OTHER_DEVICES = ("a100-80gb", "h100", "h200", "b200", "mi300x")
"""Presets that the Why tab offers in place of the devices of a plan, as far as they are others."""
OTHER_DEVICES_SHOWN = 3
"""So many of them: each is a run of the planner."""
