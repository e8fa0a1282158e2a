"""The controls of the explorer: a number (slider and typed), a choice, a row of tabs, and the bridge to the page."""

from __future__ import annotations

import anywidget
import traitlets

from alpa_explore_widgets.plotly_figure import STATIC


class NumberField(anywidget.AnyWidget):
    """A number on a slider over sensible stops, with a box in which any value in the range can be typed."""

    _esm = STATIC / "number_field.js"

    label = traitlets.Unicode().tag(sync=True)
    """Visible and accessible name."""
    hint = traitlets.Unicode().tag(sync=True)
    """Tooltip: what the number means."""
    unit = traitlets.Unicode().tag(sync=True)
    """Shown behind the number; '' for none."""
    value = traitlets.Float(None, allow_none=True).tag(sync=True)
    """None means that the planner chooses (only where `optional`)."""
    stops = traitlets.List(traitlets.Float()).tag(sync=True)
    """Positions of the slider, ascending; fewer than two hide the slider."""
    minimum = traitlets.Float(0.0).tag(sync=True)
    """Least value that can be typed."""
    maximum = traitlets.Float(None, allow_none=True).tag(sync=True)
    """Largest value that can be typed; None for no limit."""
    whole = traitlets.Bool(False).tag(sync=True)
    """Integers only."""
    optional = traitlets.Bool(False).tag(sync=True)
    """An emptied box means None."""
    note = traitlets.Unicode().tag(sync=True)
    """A line below: what the value comes to."""
    disabled = traitlets.Bool(False).tag(sync=True)
    """True while it cannot be changed."""


class ChoiceField(anywidget.AnyWidget):
    """One of a list of names."""

    _esm = STATIC / "choice_field.js"

    label = traitlets.Unicode().tag(sync=True)
    """Visible and accessible name."""
    hint = traitlets.Unicode().tag(sync=True)
    """Tooltip: what the choice means."""
    value = traitlets.Unicode().tag(sync=True)
    """The chosen option."""
    choices = traitlets.List(traitlets.List(traitlets.Unicode())).tag(sync=True)
    """[value, text, group]; options of one group stand together, '' stands at the top level."""
    note = traitlets.Unicode().tag(sync=True)
    """A line below."""
    disabled = traitlets.Bool(False).tag(sync=True)
    """True while it cannot be changed."""


class TabBar(anywidget.AnyWidget):
    """A row of tabs; what they show is somebody else's matter."""

    _esm = STATIC / "tab_bar.js"

    label = traitlets.Unicode().tag(sync=True)
    """Accessible name of the row."""
    tabs = traitlets.List(traitlets.List(traitlets.Unicode())).tag(sync=True)
    """[title, tooltip] of each."""
    selected = traitlets.Int(0).tag(sync=True)
    """Place of the tab that is shown."""


class PageBridge(anywidget.AnyWidget):
    """Invisible: reports the page's theme, keeps the page's shortcuts out of the explorer, brings the style sheet."""

    _esm = STATIC / "page_bridge.js"
    _css = STATIC / "explorer.css"

    theme = traitlets.Unicode("light").tag(sync=True)
    """'light' or 'dark', as the page is."""
    label = traitlets.Unicode("Plan explorer").tag(sync=True)
    """Accessible name of the whole explorer."""
