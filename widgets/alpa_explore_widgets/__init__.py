"""The notebook front end of alpa_explore: `explore(model)` shows a plan and lets its settings be moved."""

from alpa_explore_widgets.explorer import Explorer, explore

__all__ = ["Explorer", "explore"]
