"""Widgets of the lessons: what a page without a kernel cannot do.

workbench   a small sharding problem: click strategies, see the cost
sliders     a figure of the course with several sliders

The figures are those of `alpa_explore.figures.course`. Imports elements; nothing of the explorer.
"""

from alpa_explore_widgets.course.sliders import sliders
from alpa_explore_widgets.course.workbench import Workbench

__all__ = ["Workbench", "sliders"]
