"""The notebook front end of alpa_explore: `explore(model)` shows a plan with controls for its settings.

Its rooms in the order to read them; each may import only those before it:

- session: the state as one immutable value, the actions of a user, and work in the background. No widgets.
- elements: fields, figures and tables as widgets, with their JavaScript in static/; controls.toml has their labels.
- overview: the four small figures of the first tab, as HTML.
- panels: controls, summary, messages and the other parts around the tabs.
- lessons: the texts of teaching mode, from lessons.toml, and the panel that shows them.
- tab_kinds, tabs: the base classes of the tabs, and one file per tab.
- tab_groups: the groups of tabs, and their order.
- course: the widgets of the lessons.
- export: code, files, and the table of a saved notebook.
- figures_ahead: figures of other B, made in the background before they are asked for.
- explorer: `Explorer` puts these together: it shows the state after every change; a tab is made
  when it is first selected, and drawn only while it is.
- magics: %alpa and %%alpa. jupyter_config: how JupyterLab is started; labextension: its launcher and plan file view.

A tab is a few widgets and not one: of the 70 to 250 ms of a page's processor at its first visit (gpt-1.3b, plotly is
loaded) a widget takes about 2, and plotly's drawing most. Widgets of one class have their JavaScript in common: a page
of all tabs is 0.45 MB, of which 0.2 are these modules; with a module in each widget it was 1.26.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from alpa_explore_widgets.explorer import Explorer, explore

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

__all__ = ["Explorer", "explore", "load_ipython_extension"]


def load_ipython_extension(shell: InteractiveShell) -> None:
    """Register the magics %alpa and %%alpa (`%load_ext alpa_explore_widgets`)."""
    from alpa_explore_widgets.magics import load

    load(shell)
