"""The Plan and Cancel buttons, what the planner is doing, and whether the plan still answers the settings."""

from __future__ import annotations

from html import escape

import ipywidgets as W

from alpa_explore import units
from alpa_explore_widgets.elements.fields import Button
from alpa_explore_widgets.session.session import Session
from alpa_explore_widgets.session.state import Settings, State


class RunPanel:
    """Starts and stops planning; shows counts, elapsed time and time left."""

    def __init__(self, session: Session) -> None:
        self.plan = Button(session.plan, description="Plan", hint="Run the planner for the settings above")
        self.cancel = Button(
            session.cancel, description="Cancel", hint="Stop planning and keep the last plan", disabled=True
        )
        buttons = W.HBox([self.plan, self.cancel])
        buttons.add_class("alpa-buttons")
        self.progress = W.HTML()
        self.widget = W.VBox([buttons, self.progress])
        self.widget.add_class("alpa-run")

    def show(self, state: State) -> None:
        """Bring buttons and progress to the state."""
        self.plan.disabled = state.planning and not state.out_of_date
        self.cancel.disabled = not _busy(state) or state.cancelling
        wanted = not state.planning and (state.out_of_date or state.plan is None)
        (self.plan.add_class if wanted else self.plan.remove_class)("alpa-call")
        self.progress.value = progress_html(state)


def progress_html(state: State) -> str:
    """The bar with its line while planning; else what is out of date, or how the last run ended."""
    activity = escape(state.activity)
    if not _busy(state):
        if state.plan is not None and not state.plan.costs.complete:
            activity = f"{activity} {_PART}".strip()
        if state.out_of_date and state.planned is not None:
            changes = "<br>".join(differences(state.planned, state.settings))
            activity = f'<div class="alpa-old"><b>Out of date, press Plan</b><br>{changes}</div>'
        return f'<div class="alpa-progress" role="status">{activity}</div>'
    progress = state.progress
    if progress is None or progress.total == 0:
        return f'<div class="alpa-progress" role="status"><progress aria-label="Planning"></progress>{activity}</div>'
    left = progress.eta_seconds
    times = f"{_clock(progress.elapsed_seconds)} elapsed" + ("" if left is None else f", {_clock(left)} left")
    return (
        f'<div class="alpa-progress"><progress aria-label="Planning" max="{progress.total}" value="{progress.done}">'
        f"</progress>{activity}: {progress.done:,} of {progress.total:,}<br>{times}</div>"
    )


def _busy(state: State) -> bool:
    """True while something is planned that takes long enough to say how far it is."""
    return state.planning or (state.replanning and state.progress is not None)


_PART = "Only the stages that a plan wanted were priced: Plan prices all, which another B may want."
_WORDS = {
    "model": "model",
    "microbatch": "samples in a microbatch",
    "nodes": "nodes",
    "devices_per_node": "devices per node",
    "device": "device",
    "num_microbatches": "B",
    "schedule": "schedule",
    "communication": "sends",
    "delta": "δ",
    "num_layers": "layers",
    "memory_bytes": "memory",
    "peak_flops": "peak",
    "inside_bandwidth": "link",
    "between_bandwidth": "network",
    "rematerialization": "recompute",
    "precision": "precision",
    "solver": "solver",
    "submesh_space": "submeshes",
}
_FORMATS = {
    "memory_bytes": units.bytes_,
    "peak_flops": units.flops_per_second,
    "inside_bandwidth": units.bytes_per_second,
    "between_bandwidth": units.bytes_per_second,
}


def differences(planned: Settings, wanted: Settings) -> list[str]:
    """'δ 0.5 → 0.3' for each setting that the plan does not answer."""
    pairs = ((name, getattr(planned, name), getattr(wanted, name)) for name in _WORDS)
    apart = [
        f"{_WORDS[name]} {escape(_spell(name, old))} → {escape(_spell(name, new))}"
        for name, old, new in pairs
        if old != new
    ]
    before, after = planned.spec_constraints, wanted.spec_constraints
    apart += [f"spec constraint: {escape(str(constraint))}" for constraint in after if constraint not in before]
    return apart + [
        f"no longer constrained: {escape(str(constraint))}" for constraint in before if constraint not in after
    ]


def _spell(name: str, value: object) -> str:
    if value is None:
        return "usual" if name in _FORMATS or name in ("rematerialization", "precision") else "auto"
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, float):
        return _FORMATS[name](value) if name in _FORMATS else f"{value:g}"
    return str(value)


def _clock(seconds: float) -> str:
    whole = round(seconds)
    return f"{whole} s" if whole < 60 else f"{whole // 60}:{whole % 60:02d} min"
