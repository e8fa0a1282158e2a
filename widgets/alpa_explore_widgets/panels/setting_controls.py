"""The control of each setting, with the conversions between the widget's value and the setting."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import ipywidgets as W

from alpa_explore.inter_op.options import AUTO
from alpa_explore.inter_op.schedule_terms import SCHEDULES
from alpa_explore_widgets.elements.fields import CONTROLS, ChoiceField, Fold, NumberField, options
from alpa_explore_widgets.elements.page_widget import box, set_class, set_shown
from alpa_explore_widgets.session.settings import Settings
from alpa_explore_widgets.session.sources import Sources

B_STOPS = [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024]
DELTA_STOPS = [0.0, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.25, 1.5, 2.0]
LAYER_STOPS = [*range(1, 17), 18, 20, 24, 28, 32, 40, 48, 64]
SEQUENCE_STOPS = [2**n for n in range(9, 21)]
IMBALANCE_STOPS = [1.0, 1.05, 1.1, 1.2, 1.3, 1.4, 1.5, 1.75, 2.0, 2.5, 3.0, 4.0]
DEVICES_PER_NODE = [1, 2, 3, 4, 6, 8, 12, 16, 72]
MEMORY_STOPS = [4, 8, 12, 16, 24, 32, 40, 48, 64, 80, 96, 128, 141, 192, 256]
"""GiB."""
PEAK_STOPS = [10, 20, 40, 60, 80, 100, 125, 160, 200, 250, 312, 400, 500, 700, 989, 1500, 2250]
"""TFLOP/s."""
INSIDE_STOPS = [4, 8, 16, 32, 64, 100, 150, 200, 300, 450, 600, 900]
"""GB/s; the next one too."""
BETWEEN_STOPS = [0.1, 0.3, 1, 1.5, 3, 6, 12, 25, 50, 100, 200, 400]
GIB, TERA, GIGA = float(2**30), 1e12, 1e9
_DEFAULT, _ON, _OFF = "default", "on", "off"
_SWITCH = {_ON: True, _OFF: False}
_RECOMPUTED: dict[str, tuple[bool | str | None, str]] = {
    _DEFAULT: (None, "default"),
    "none": (False, "nothing"),
    "norms": ("norms", "norms and activations"),
    "attention": ("attention", "attention"),
    "norms+attention": ("norms+attention", "norms and attention"),
    "mlp": ("mlp", "feed-forward parts"),
    "half": ("half", "every second block"),
    "full": ("full", "every block"),
    "layers": ("layers", "every layer (Alpa)"),
    "auto": ("auto", "what a stage needs"),
}
"""Choice -> its setting, and its words."""
_SUBMESHES = {"all": "all (the paper)", "power-of-two": "1, 2, 4, … nodes"}
WORDS = CONTROLS["settings"]
"""Setting -> its `label`, and its tooltip, the `hint`."""


@dataclass(frozen=True, slots=True)
class Control:
    """The widget of a setting, and the conversions between its value and that of the setting."""

    widget: NumberField | ChoiceField
    to_widget: Callable[[Any], Any] = lambda value: value
    to_setting: Callable[[Any], Any] = lambda value: value


def controls_of(sources: Sources, settings: Settings) -> dict[str, Control]:
    """Setting -> its control."""
    per_node = sorted({*DEVICES_PER_NODE, settings.devices_per_node})
    microbatch, no_precision = str(settings.microbatch), (lambda value: value or "", lambda value: value or None)
    schedules = [[AUTO, AUTO, "the fastest of those that the software runs"], *options(SCHEDULES)]
    recomputed = options({option: words for option, (_, words) in _RECOMPUTED.items()})
    modes = options({_DEFAULT: "default", _OFF: "what it takes", _ON: "ideal, as in the paper"})
    return {
        "model": _choice("model", sources.model_choices(), settings.model),
        "nodes": _integer("nodes", (), 1024),
        "devices_per_node": _choice(
            "devices_per_node", options({str(n): f"× {n}" for n in per_node}), str(settings.devices_per_node), str, int
        ),
        "device": _choice("device", sources.device_choices(), settings.device),
        "memory_bytes": _device_figure("memory_bytes", "GiB", MEMORY_STOPS, GIB, 4096),
        "peak_flops": _device_figure("peak_flops", "TFLOP/s", PEAK_STOPS, TERA, 1e6),
        "inside_bandwidth": _device_figure("inside_bandwidth", "GB/s", INSIDE_STOPS, GIGA, 1e5),
        "between_bandwidth": _device_figure("between_bandwidth", "GB/s", BETWEEN_STOPS, GIGA, 1e5),
        "num_microbatches": _integer("num_microbatches", B_STOPS, 65536),
        "microbatch": _choice("microbatch", options([microbatch]), microbatch, str, int),
        "precision": _choice("precision", sources.precisions(settings.model), "", *no_precision),
        "sequence": _integer("sequence", SEQUENCE_STOPS, 2**27, optional=True),
        "expert_imbalance": Control(_number("expert_imbalance", IMBALANCE_STOPS, 1.0, 64.0)),
        "schedule": _choice("schedule", schedules, settings.schedule),
        "rematerialization": _choice(
            "rematerialization", recomputed, _DEFAULT, _recomputed_option, lambda option: _RECOMPUTED[option][0]
        ),
        "delta": Control(_number("delta", DELTA_STOPS, 0.0, 100.0)),
        "num_layers": _integer("num_layers", LAYER_STOPS, 1024, optional=True),
        "solver": _choice("solver", options(sources.solvers()), settings.solver),
        "submesh_space": _choice("submesh_space", options(_SUBMESHES), settings.submesh_space),
        "paper": _choice(
            "paper", modes, _DEFAULT, lambda on: _DEFAULT if on is None else _ON if on else _OFF, _SWITCH.get
        ),
    }


def _choice(
    setting: str,
    choices: list[list[str]],
    value: str,
    to_widget: Callable[[Any], str] = str,
    to_setting: Callable[[str], Any] = str,
) -> Control:
    """A list to choose from."""
    return Control(ChoiceField(**WORDS[setting], choices=choices, value=value), to_widget, to_setting)


def _number(setting: str, stops: Sequence[float], least: float, most: float, **traits: Any) -> NumberField:
    every = [float(stop) for stop in stops]
    return NumberField(**{**WORDS[setting], "minimum": least, "maximum": most, "stops": every, **traits})


def _integer(setting: str, stops: Sequence[int], most: int, *, optional: bool = False) -> Control:
    """A whole number from 1."""
    field = _number(setting, stops, 1, most, whole=True, optional=optional)
    return Control(field, to_setting=lambda value: None if value is None else int(value))


def _device_figure(setting: str, unit: str, stops: Sequence[float], scale: float, most: float) -> Control:
    """A figure of the device in a customary unit of `scale` SI units; the setting is in SI units."""
    hint = f"{WORDS[setting]['hint']} In {unit}; empty: the figure of the chosen device."
    return Control(
        _number(setting, stops, 0.001, most, unit=unit, hint=hint, optional=True),
        lambda value: None if value is None else float(f"{value / scale:.6g}"),
        lambda value: None if value is None else value * scale,
    )


def _recomputed_option(setting: bool | str | None) -> str:
    """The choice for a setting; parts that no choice offers show as the nearest, 'auto'."""
    names = {True: "full", False: "none", None: _DEFAULT}
    option = setting if isinstance(setting, str) else names[setting]
    return option if option in _RECOMPUTED else "auto"


def row(*fields: W.Widget) -> W.HBox:
    """Three fields side by side."""
    return box("alpa-row", *fields)


def pair(*fields: W.Widget) -> W.HBox:
    """Two fields side by side, the second one wider."""
    return box("alpa-pair", *fields)


def drawer_handle(drawer: W.Widget) -> Fold:
    """The button that opens and closes `drawer` on a narrow page; on a wide one the drawer is always open."""
    handle = Fold(label="Settings", hint="Model, cluster, training and planner", expanded=False)
    handle.add_class("alpa-drawer-handle")

    def show(change: dict[str, Any]) -> None:
        set_class(drawer, "alpa-open", on=change["new"])

    handle.observe(show, "expanded")
    return handle


def fold(title: str, hint: str, *fields: W.Widget, expanded: bool = True) -> tuple[W.Widget, W.Widget]:
    """A group of controls and the heading that shows and hides it."""
    heading, group = Fold(label=title, hint=hint, expanded=expanded), box("alpa-controls", *fields, kind=W.VBox)

    def show(_change: dict[str, Any] | None = None) -> None:
        set_shown(group, on=heading.expanded)

    heading.observe(show, "expanded")
    show()
    return heading, group
