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

A tab is a few widgets and not one. Its first visit takes, in processor time (gpt-1.3b on 2x4:a100, plotly is loaded,
least of three), 9–68 ms of the kernel, of which all messages are 2–15, and 70–180 ms of the page (Run 220, Timeline
330, Accuracy 380). Of these plotly draws for 25–60 (Accuracy 140). A model that is opened, of which a widget has two or
three, takes about 2: the 12 to 18 of most tabs 25–40. Run alone, of 81 models, is mostly widgets. A page of all tabs is
0.45 MB, of which 0.2 are the JavaScript that widgets of one class have in common.
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
