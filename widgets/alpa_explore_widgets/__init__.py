"""The notebook front end of alpa_explore: `explore(model)` shows a plan and lets its settings be moved."""

from __future__ import annotations

from typing import TYPE_CHECKING

from alpa_explore_widgets.explorer import Explorer, explore

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

__all__ = ["Explorer", "explore", "load_ipython_extension"]


def load_ipython_extension(shell: InteractiveShell) -> None:
    """`%load_ext alpa_explore_widgets`: the magics %alpa and %%alpa."""
    from alpa_explore_widgets.magics import load

    load(shell)
