"""The left column: what is asked for."""

from __future__ import annotations

from typing import Any

import ipywidgets as W

from alpa_explore_widgets.fields import ChoiceField, NumberField
from alpa_explore_widgets.session import Session
from alpa_explore_widgets.state import State

B_STOPS = [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024]
DELTA_STOPS = [0.0, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.25, 1.5, 2.0]
LAYER_STOPS = [*range(1, 17), 18, 20, 24, 28, 32, 40, 48, 64]
DEVICES_PER_NODE = [1, 2, 4, 8, 16]
WHOLE = {"nodes", "devices_per_node", "num_microbatches", "microbatch", "num_layers"}


class ControlsPanel:
    """Shows the settings and hands every change to the session."""

    def __init__(self, session: Session) -> None:
        self._session, sources = session, session.sources
        settings = session.store.state.settings
        self._showing = False
        self.model = ChoiceField(
            label="Model", hint="The model to plan: a row of the Alpa paper's tables, a small one, or yours.",
            choices=sources.model_choices(), value=settings.model,
        )  # fmt: skip
        self.nodes = NumberField(
            label="nodes", hint="Number of nodes (machines) in the cluster.", minimum=1, maximum=64, whole=True
        )
        per_node = sorted({*DEVICES_PER_NODE, settings.devices_per_node})
        self.devices_per_node = ChoiceField(
            label="devices",
            hint="Devices in each node, a power of two.",
            choices=[[str(n), f"× {n}", ""] for n in per_node],
            value=str(settings.devices_per_node),
        )
        self.device = ChoiceField(
            label="device", hint="The accelerator: its peak FLOP/s, memory and links come with it.",
            choices=sources.device_choices(), value=settings.device,
        )  # fmt: skip
        self.num_microbatches = NumberField(
            label="B, microbatches",
            hint="Microbatches in one iteration. Their size stays, and the plan follows at once.",
            minimum=1, maximum=65536, whole=True, stops=[float(b) for b in B_STOPS],
        )  # fmt: skip
        self.microbatch = ChoiceField(
            label="Samples in a microbatch", hint="Sequences or images in one microbatch.",
            choices=[[str(settings.microbatch), str(settings.microbatch), ""]], value=str(settings.microbatch),
        )  # fmt: skip
        self.delta = NumberField(
            label="δ, FLOP tolerance", hint="A layer may hold up to (1 + δ) times the mean FLOPs of a layer.",
            minimum=0.0, maximum=100.0, stops=DELTA_STOPS,
        )  # fmt: skip
        self.num_layers = NumberField(
            label="Layers", hint="Number of layers that operators are clustered into; empty lets the planner choose.",
            minimum=1, maximum=1024, whole=True, optional=True, stops=[float(n) for n in LAYER_STOPS],
        )  # fmt: skip
        cluster = W.HBox([self.nodes, self.devices_per_node, self.device])
        cluster.add_class("alpa-row")
        self.widget = W.VBox([
            self.model, _group("Cluster"), cluster, _group("Training"), self.num_microbatches,
            self.microbatch, _group("Planner"), self.delta, self.num_layers,
        ])  # fmt: skip
        self.widget.add_class("alpa-controls")
        for name in (
            "model",
            "nodes",
            "devices_per_node",
            "device",
            "num_microbatches",
            "microbatch",
            "delta",
            "num_layers",
        ):
            getattr(self, name).observe(self._changed, "value")

    def show(self, state: State) -> None:
        """Bring the controls to the settings (a change of the model changes several)."""
        s, sources = state.settings, self._session.sources
        self._showing = True
        try:
            self.model.value, self.model.note = s.model, sources.describe(s.model)
            self.nodes.value, self.devices_per_node.value, self.device.value = (
                s.nodes,
                str(s.devices_per_node),
                s.device,
            )
            self.num_microbatches.value = s.num_microbatches
            self.num_microbatches.note = (
                f"{s.num_microbatches:,} × {s.microbatch:,} = {s.num_microbatches * s.microbatch:,} samples a step"
            )
            choices = [[str(m), f"{m:,}", ""] for m in sources.microbatches(s.model)]
            if choices != self.microbatch.choices:
                self.microbatch.choices = choices
            self.microbatch.value, self.microbatch.disabled = str(s.microbatch), len(choices) == 1
            self.delta.value, self.num_layers.value = s.delta, s.num_layers
        finally:
            self._showing = False

    def _changed(self, change: dict[str, Any]) -> None:
        with self._session.store.lock:  # a planner thread may be in `show`: what it assigns is no wish of the user
            if self._showing:
                return
            name = next(n for n, field in vars(self).items() if field is change["owner"])
            value = change["new"]
            self._session.set(**{name: int(value) if name in WHOLE and value is not None else value})


def _group(title: str) -> W.HTML:
    heading = W.HTML(title)
    heading.add_class("alpa-group")
    return heading
