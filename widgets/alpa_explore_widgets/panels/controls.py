"""The left column: what is asked for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import ipywidgets as W

from alpa_explore.inter_op.schedule_terms import SCHEDULES
from alpa_explore_widgets.elements.fields import ChoiceField, Fold, NumberField
from alpa_explore_widgets.session.session import Session
from alpa_explore_widgets.session.sources import HALF
from alpa_explore_widgets.session.state import Settings, State

B_STOPS = [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024]
DELTA_STOPS = [0.0, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.25, 1.5, 2.0]
LAYER_STOPS = [*range(1, 17), 18, 20, 24, 28, 32, 40, 48, 64]
DEVICES_PER_NODE = [1, 2, 4, 8, 16]
MEMORY_STOPS = [4, 8, 12, 16, 24, 32, 40, 48, 64, 80, 96, 128, 141, 192, 256]
PEAK_STOPS = [10, 20, 40, 60, 80, 100, 125, 160, 200, 250, 312, 400, 500, 700, 989, 1500, 2250]
INSIDE_STOPS = [4, 8, 16, 32, 64, 100, 150, 200, 300, 450, 600, 900]
BETWEEN_STOPS = [0.1, 0.3, 1, 1.5, 3, 6, 12, 25, 50, 100, 200, 400]
GIB, TERA, GIGA = float(2**30), 1e12, 1e9
_USUAL, _ON, _OFF, _AUTO = "usual", "on", "off", "auto"
_SWITCH = {_USUAL: None, _ON: True, _OFF: False, _AUTO: _AUTO}


@dataclass(frozen=True, slots=True)
class _Control:
    """How a field of the settings is shown, and how what is shown becomes a setting."""

    widget: NumberField | ChoiceField
    shown: Callable[[Any], Any] = lambda value: value
    meant: Callable[[Any], Any] = lambda value: value


class ControlsPanel:
    """Shows the settings and hands every change to the session."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._showing = False
        settings = session.store.state.settings
        self.fields = self._fields(settings)
        self.widget = W.VBox(
            [
                self["model"],
                *_fold("Cluster", "Nodes and devices.", _row(self["nodes"], self["devices_per_node"], self["device"])),
                *_fold(
                    "Figures of a device",
                    "Empty: as the device has them. Press Plan after a change.",
                    *(self[n] for n in ("memory_bytes", "peak_flops", "inside_bandwidth", "between_bandwidth")),
                    expanded=False,
                ),
                *_fold(
                    "Training",
                    "What an iteration is.",
                    self["num_microbatches"],
                    _pair(self["microbatch"], self["precision"]),
                    _pair(self["schedule"], self["rematerialization"]),
                ),
                *_fold("Planner", "What the planner may do.", self["delta"], self["num_layers"]),
                *_fold(
                    "More options",
                    "Solver, submeshes, communication.",
                    self["solver"],
                    self["submesh_space"],
                    self["communication"],
                    expanded=False,
                ),
            ]
        )
        self.widget.add_class("alpa-controls")
        for control in self.fields.values():
            control.widget.observe(self._changed, ["value", "edits"])

    def __getitem__(self, name: str) -> Any:
        """The widget of a setting."""
        return self.fields[name].widget

    def show(self, state: State) -> None:
        """Bring the controls to the settings (a change of the model changes several)."""
        s, sources = state.settings, self._session.sources
        self._showing = True
        try:
            choices = [[str(m), f"{m:,}", ""] for m in sources.microbatches(s.model)]
            if choices != self["microbatch"].choices:
                self["microbatch"].choices = choices
            self["microbatch"].disabled = len(choices) == 1
            precisions = sources.precisions(s.model)
            if precisions != self["precision"].choices:
                self["precision"].choices = precisions
            self["precision"].disabled = len(precisions) == 2
            for name, control in self.fields.items():
                control.widget.value = control.shown(getattr(s, name))
            self["model"].note = sources.describe(s.model)
            self[
                "num_microbatches"
            ].note = f"{s.num_microbatches:,} × {s.microbatch:,} = {s.num_microbatches * s.microbatch:,} samples a step"
            for name, value in sources.usual_figures(s).items():
                self[name].usual = self.fields[name].shown(value)
        finally:
            self._showing = False

    def _changed(self, change: dict[str, Any]) -> None:
        with (
            self._session.store.lock
        ):  # a planner thread may be in `show`: what it assigns is no spec constraint of the user
            if self._showing:
                return
            name = next(n for n, control in self.fields.items() if control.widget is change["owner"])
            # What was typed is there when its count is (see `order`), whichever of the two is heard first.
            value = change["new"] if change["name"] == "value" else change["owner"].value
            self._session.set(**{name: self.fields[name].meant(value)})

    def _fields(self, settings: Settings) -> dict[str, _Control]:
        sources = self._session.sources
        per_node = sorted({*DEVICES_PER_NODE, settings.devices_per_node})
        return {
            "model": _choice(
                "Model",
                "The model to plan: a row of the Alpa paper's tables, a small one, or yours.",
                sources.model_choices(),
                settings.model,
            ),
            "nodes": _whole("nodes", "Number of nodes (machines) in the cluster.", [], 1, 64),
            "devices_per_node": _choice(
                "devices",
                "Devices in each node, a power of two.",
                [[str(n), f"× {n}", ""] for n in per_node],
                str(settings.devices_per_node),
                str,
                int,
            ),
            "device": _choice(
                "device",
                "The accelerator: its peak FLOP/s, memory and links come with it.",
                sources.device_choices(),
                settings.device,
            ),
            "memory_bytes": _figure("Memory", "GiB", "Of one device.", MEMORY_STOPS, GIB, 0.001, 4096),
            "peak_flops": _figure(
                "Peak",
                "TFLOP/s",
                f"Of one device in {HALF}; its other rates follow in proportion.",
                PEAK_STOPS,
                TERA,
                0.001,
                1e6,
            ),
            "inside_bandwidth": _figure(
                "Link",
                "GB/s",
                "Bandwidth between the devices of a node, one direction.",
                INSIDE_STOPS,
                GIGA,
                0.001,
                1e5,
            ),
            "between_bandwidth": _figure(
                "Network",
                "GB/s",
                "Bandwidth of one node's network, shared by its devices.",
                BETWEEN_STOPS,
                GIGA,
                0.001,
                1e5,
            ),
            "num_microbatches": _whole(
                "B, microbatches",
                "Microbatches in one iteration. Their size stays, and the plan follows at once.",
                B_STOPS,
                1,
                65536,
            ),
            "microbatch": _choice(
                "Microbatch",
                "Samples (sequences or images) in one microbatch.",
                [[str(settings.microbatch), str(settings.microbatch), ""]],
                str(settings.microbatch),
                str,
                int,
            ),
            "precision": _choice(
                "Precision",
                "The dtype in which weights are read. The model is captured again: press Plan.",
                sources.precisions(settings.model),
                "",
                lambda value: value or "",
                lambda value: value or None,
            ),
            "schedule": _choice(
                "Schedule",
                "The order of the tasks: how much is held, how long stages wait. The plan follows at once.",
                [[name, name, ""] for name in SCHEDULES],
                settings.schedule,
            ),
            "rematerialization": _choice(
                "Recompute",
                "Rematerialisation at layer boundaries: less memory, one more forward pass.",
                [[_USUAL, "as usual", ""], [_ON, "on", ""], [_OFF, "off", ""], [_AUTO, "where needed", ""]],
                _USUAL,
                lambda value: next(word for word, meaning in _SWITCH.items() if meaning == value),
                _SWITCH.__getitem__,
            ),
            "delta": _Control(
                NumberField(
                    label="δ, FLOP tolerance",
                    hint="A layer may hold up to (1 + δ) times the mean FLOPs of a layer; answered at once.",
                    minimum=0.0,
                    maximum=100.0,
                    stops=DELTA_STOPS,
                )
            ),
            "num_layers": _whole(
                "Layers",
                "Number of layers that operators are clustered into; empty lets the planner choose.",
                LAYER_STOPS,
                1,
                1024,
                optional=True,
            ),
            "solver": _choice(
                "Solver",
                "Of the sharding problems; all of them are exact.",
                [[name, name, ""] for name in sources.solvers()],
                settings.solver,
            ),
            "submesh_space": _choice(
                "Submeshes",
                "Which pieces of the cluster a stage may have.",
                [["all", "all (the paper)", ""], ["power-of-two", "powers of two of nodes", ""]],
                settings.submesh_space,
            ),
            "communication": _choice(
                "Sends between stages",
                "Whether a stage's latency counts what it waits for. The plan follows at once.",
                [[_OFF, "not counted (the paper)", ""], [_ON, "counted", ""]],
                _OFF,
                lambda value: _ON if value else _OFF,
                _SWITCH.__getitem__,
            ),
        }


def _choice(
    label: str,
    hint: str,
    choices: list[list[str]],
    value: str,
    shown: Callable[[Any], str] = str,
    meant: Callable[[str], Any] = str,
) -> _Control:
    return _Control(ChoiceField(label=label, hint=hint, choices=choices, value=value), shown, meant)


def _whole(label: str, hint: str, stops: list[int], minimum: int, maximum: int, *, optional: bool = False) -> _Control:
    field = NumberField(
        label=label,
        hint=hint,
        minimum=minimum,
        maximum=maximum,
        whole=True,
        optional=optional,
        stops=[float(stop) for stop in stops],
    )
    return _Control(field, meant=lambda value: None if value is None else int(value))


def _figure(
    label: str, unit: str, hint: str, stops: list[float], scale: float, minimum: float, maximum: float
) -> _Control:
    """A figure of a device in a unit for people; the settings are SI."""
    field = NumberField(
        label=label,
        unit=unit,
        hint=f"{hint} Empty: as the device has it.",
        minimum=minimum,
        maximum=maximum,
        optional=True,
        stops=[float(stop) for stop in stops],
    )
    return _Control(
        field,
        lambda value: None if value is None else float(f"{value / scale:.6g}"),
        lambda value: None if value is None else value * scale,
    )


def _row(*fields: W.Widget) -> W.HBox:
    row = W.HBox(list(fields))
    row.add_class("alpa-row")
    return row


def _pair(*fields: W.Widget) -> W.HBox:
    row = W.HBox(list(fields))
    row.add_class("alpa-pair")
    return row


def _fold(title: str, hint: str, *fields: W.Widget, expanded: bool = True) -> tuple[W.Widget, W.Widget]:
    heading, group = Fold(label=title, hint=hint, expanded=expanded), W.VBox(list(fields))
    group.add_class("alpa-controls")

    def show(_change: dict[str, Any] | None = None) -> None:
        group.layout.display = "" if heading.expanded else "none"

    heading.observe(show, "expanded")
    show()
    return heading, group
