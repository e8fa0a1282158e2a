"""The kinds of controls for a setting, each with the conversions between the widget's value and the setting."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import ipywidgets as W

from alpa_explore_widgets.elements.fields import ChoiceField, Fold, NumberField


@dataclass(frozen=True, slots=True)
class Control:
    """The widget of a setting, and the conversions between its value and that of the setting."""

    widget: NumberField | ChoiceField
    to_widget: Callable[[Any], Any] = lambda value: value
    to_setting: Callable[[Any], Any] = lambda value: value


def choice(
    label: str,
    hint: str,
    choices: list[list[str]],
    value: str,
    to_widget: Callable[[Any], str] = str,
    to_setting: Callable[[str], Any] = str,
) -> Control:
    """A list to choose from."""
    return Control(ChoiceField(label=label, hint=hint, choices=choices, value=value), to_widget, to_setting)


def integer(
    label: str, hint: str, stops: Sequence[int], minimum: int, maximum: int, *, optional: bool = False
) -> Control:
    """A whole number."""
    field = NumberField(
        label=label,
        hint=hint,
        minimum=minimum,
        maximum=maximum,
        whole=True,
        optional=optional,
        stops=[float(stop) for stop in stops],
    )
    return Control(field, to_setting=lambda value: None if value is None else int(value))


def device_figure(
    label: str, unit: str, hint: str, stops: Sequence[float], scale: float, minimum: float, maximum: float
) -> Control:
    """A figure of the device in a customary unit of `scale` SI units; the setting is in SI units."""
    field = NumberField(
        label=label,
        unit=unit,
        hint=f"{hint} In {unit}; empty: the figure of the chosen device.",
        minimum=minimum,
        maximum=maximum,
        optional=True,
        stops=[float(stop) for stop in stops],
    )
    return Control(
        field,
        lambda value: None if value is None else float(f"{value / scale:.6g}"),
        lambda value: None if value is None else value * scale,
    )


def row(*fields: W.Widget) -> W.HBox:
    """Three fields side by side."""
    box = W.HBox(list(fields))
    box.add_class("alpa-row")
    return box


def pair(*fields: W.Widget) -> W.HBox:
    """Two fields side by side, the second one wider."""
    box = W.HBox(list(fields))
    box.add_class("alpa-pair")
    return box


def drawer_handle(drawer: W.Widget) -> Fold:
    """The button that opens and closes `drawer` on a narrow page; on a wide one the drawer is always open."""
    handle = Fold(label="Settings", hint="Model, cluster, training and planner", expanded=False)
    handle.add_class("alpa-drawer-handle")

    def show(change: dict[str, Any]) -> None:
        (drawer.add_class if change["new"] else drawer.remove_class)("alpa-open")

    handle.observe(show, "expanded")
    return handle


def fold(title: str, hint: str, *fields: W.Widget, expanded: bool = True) -> tuple[W.Widget, W.Widget]:
    """A group of controls and the heading that shows and hides it."""
    heading, group = Fold(label=title, hint=hint, expanded=expanded), W.VBox(list(fields))
    group.add_class("alpa-controls")

    def show(_change: dict[str, Any] | None = None) -> None:
        group.layout.display = "" if heading.expanded else "none"

    heading.observe(show, "expanded")
    show()
    return heading, group
