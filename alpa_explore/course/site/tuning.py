"""Limits of the website."""

KERNELS = 2
"""Lessons that run at once: half of a lesson's time is starting its kernel, and small machines have two cores."""
CELL_SECONDS = 300
"""After which a cell has failed."""
PLAN_SECONDS = 240
"""For which the plan of an explorer is awaited."""
PLAN_ROWS = 60
"""Of the table of a figure of a plan; the page of `alpa-explore plan --html` has more."""
OPEN_LINES = 12
"""Lines of a code cell up to which a page shows it open: about a third of a screen."""
