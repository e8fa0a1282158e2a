"""The Plan button, with what has changed and how far the planner is; the toolbar."""

from collections.abc import Callable, Mapping
from html import escape
from types import MappingProxyType
from typing import Any

import ipywidgets as W

from alpa_explore import units
from alpa_explore.plans.plan import Plan
from alpa_explore_widgets.elements.fields import Button, Toolbar
from alpa_explore_widgets.elements.page_widget import box, set_class
from alpa_explore_widgets.session.session import Session
from alpa_explore_widgets.session.settings import Settings
from alpa_explore_widgets.session.state import State

_COMPILING = "<br>Compiling kernels (only the first time on this machine)…"
_INCOMPLETE = "Only the stages that the search needed are priced: Plan prices all; another B may need them."
_NAMES = {
    "model": "model",
    "microbatch": "samples per microbatch",
    "nodes": "nodes",
    "devices_per_node": "devices per node",
    "device": "device",
    "num_microbatches": "B",
    "schedule": "schedule",
    "paper": "mode",
    "communication": "sends",
    "delta": "δ",
    "num_layers": "layers",
    "memory_bytes": "memory",
    "peak_flops": "peak",
    "inside_bandwidth": "link",
    "between_bandwidth": "network",
    "rematerialization": "recompute",
    "precision": "precision",
    "sequence": "sequence",
    "expert_imbalance": "expert imbalance",
    "solver": "solver",
    "submesh_space": "submeshes",
    "boundaries": "layers begin at",
    "cuts": "stages begin at layers",
    "num_stages": "stages",
    "stage_submeshes": "submeshes of stages",
    "imbalance_tolerance": "FLOP imbalance",
    "tied_weights": "sums of tied weights",
}
"""Setting -> its name on screen."""
_FORMATS = {
    "memory_bytes": units.bytes_,
    "peak_flops": units.flops_per_second,
    "inside_bandwidth": units.bytes_per_second,
    "between_bandwidth": units.bytes_per_second,
}


class PlanButtonPanel:
    """Starts and stops planning; shows counts, elapsed time and time left."""

    def __init__(self, session: Session) -> None:
        self._sources = session.sources
        self.plan = Button(session.plan, description="Plan", hint="Run the planner for the settings above")
        self.cancel = Button(
            session.cancel, description="Cancel", hint="Stop planning and keep the last plan", disabled=True
        )
        buttons, self.progress = box("alpa-buttons", self.plan, self.cancel), W.HTML()
        self.widget = box("alpa-plan-button", buttons, self.progress, kind=W.VBox)

    def show(self, state: State) -> None:
        """Update the buttons and the progress."""
        self.plan.disabled = state.planning and not state.out_of_date
        self.cancel.disabled = not _busy(state) or state.cancelling
        highlighted = not state.planning and (state.out_of_date or state.estimated or state.plan is None)
        set_class(self.plan, "alpa-call", on=highlighted)
        self.progress.value = progress_html(state, self._sources.model_defaults(state.settings.model))


def progress_html(state: State, model_defaults: Mapping[str, object] = MappingProxyType({})) -> str:
    """The progress bar while planning; otherwise the settings that changed since, or the outcome of the last work.

    `model_defaults` are the settings that the chosen model brings with it.
    """
    activity = escape(state.activity)
    if not _busy(state):
        if state.plan is not None and not state.plan.costs.complete:
            activity = f"{activity} {_INCOMPLETE}".strip()
        if state.out_of_date and state.plan_settings is not None:
            before, after = state.plan_settings, state.settings
            changes = "<br>".join(changed_settings(before, after, model_defaults))
            if after.model != before.model:
                changes += f"<br>The figures show {escape(before.model)}; B and all other settings wait for Plan."
            head = "Out of date, press Plan" if state.fault is None else "No plan with these settings"
            activity = f'<div class="alpa-old"><b>{head}</b><br>{changes}</div>'
        return f'<div class="alpa-progress" role="status">{activity}</div>'
    progress, compiling = state.progress, _COMPILING if state.compiling else ""
    if progress is None or progress.total == 0:
        bar = '<progress aria-label="Planning"></progress>'
        return f'<div class="alpa-progress" role="status">{bar}{activity}{compiling}</div>'
    counted, times = progress_words(state).rsplit("; ", 1)
    return (
        f'<div class="alpa-progress"><progress aria-label="Planning" max="{progress.total}" value="{progress.done}">'
        f"</progress>{escape(counted)}<br>{times}{compiling}</div>"
    )


def progress_words(state: State) -> str:
    """What the planner does: 'sharding: 3 of 12; 4 s elapsed, 12 s left'."""
    progress = state.progress
    if progress is None or progress.total == 0:
        return state.activity
    left = progress.eta_seconds
    times = f"{_clock(progress.elapsed_seconds)} elapsed" + ("" if left is None else f", {_clock(left)} left")
    return f"{state.activity}: {progress.done:,} of {progress.total:,}; {times}"


def changed_settings(
    before: Settings, after: Settings, model_defaults: Mapping[str, object] = MappingProxyType({})
) -> list[str]:
    """'δ 0.5 → 0.3' for each setting that differs, as HTML; of another model, which values are its defaults."""
    defaults = model_defaults if after.model != before.model else {}
    values = ((name, getattr(before, name), getattr(after, name)) for name in _NAMES)
    changes = [
        f"{_NAMES[name]} {escape(_text(name, old))} → {escape(_text(name, new))}"
        + (" (the model's default)" if name in defaults and new == defaults[name] is not None else "")
        for name, old, new in values
        if old != new
    ]
    old_constraints, new_constraints = before.spec_constraints, after.spec_constraints
    added = [f"spec constraint: {escape(str(c))}" for c in new_constraints if c not in old_constraints]
    removed = [f"no longer constrained: {escape(str(c))}" for c in old_constraints if c not in new_constraints]
    return changes + added + removed


def _busy(state: State) -> bool:
    """True during planning, and during a replan that takes long enough to report progress."""
    return state.planning or (state.replanning and state.progress is not None)


def _text(name: str, value: object) -> str:
    """The value of a setting for people."""
    if value is None:
        return "default" if name in _FORMATS or name in ("rematerialization", "precision", "sequence") else "auto"
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, float):
        return _FORMATS[name](value) if name in _FORMATS else f"{value:g}"
    return str(value)


def _clock(seconds: float) -> str:
    whole = round(seconds)
    return f"{whole} s" if whole < 60 else f"{whole // 60}:{whole % 60:02d} min"


BUTTONS = [
    ["undo", "Undo", "Take back changed settings, or show the plan that was viewed before"],
    ["redo", "Redo", "Show the plan again from which you went back"],
    ["pin", "Pin", "Compare with this plan from now on; press again to stop"],
    ["table", "Tables", "Show figures as tables"],
    ["teach", "Teach", "Explain each tab with the numbers of this plan; tabs in the order of the algorithm"],
    ["open", "Open…", "Show a plan file"],
    ["reset", "Reset", "Restore the settings with which the explorer started"],
    ["copy", "Copy code", "Copy Python code that makes this plan"],
]
"""[name, text, tooltip] of each."""
EXPORTS = [
    ["plan", "Save plan", "Save the plan as a file"],
    ["html", "HTML", "Save a page with all figures; it needs no network"],
    ["report", "Report of what was tried", "Save a page with all plans of this explorer; it needs no network"],
    ["csv", "CSV", "Save the table of the visible figure"],
    ["trace", "Perfetto trace", "Save the timeline for ui.perfetto.dev and chrome://tracing"],
    ["png", "PNG", "Save the visible figure as a picture"],
    ["svg", "SVG", "Save the visible figure as a drawing"],
    ["megatron", "Megatron-LM", "A script with its arguments; it lists what they do not express"],
    ["nemo", "NeMo (Megatron-Bridge)", "A Python config; it lists what that does not express"],
    ["torchtitan", "torchtitan", "A Python config; it lists what that does not express"],
    ["fsdp2", "FSDP2 code", "PyTorch code that trains: DTensor, FSDP2, pipelining; it lists what it does not express"],
    ["torch", "DTensor code", "Save the plan as PyTorch code: device meshes and placements of all tensors"],
]
"""The same for the items of the menu; some are targets of `ax.export`."""
_PICTURES = ("png", "svg")
_NEED_A_PLAN = ("pin", "table", "teach", *(name for name, *_ in EXPORTS))


class ToolbarPanel:
    """Calls `press(name, content, buffers)` for each press."""

    def __init__(self, press: Callable[[str, dict[str, Any], list[Any]], None]) -> None:
        self.widget = Toolbar(
            label="Plan", buttons=BUTTONS, menu_label="Export", menu=EXPORTS, disabled=[*_NEED_A_PLAN, "undo", "redo"]
        )
        self.widget.on_msg(lambda _, content, buffers: press(content.get("kind", ""), content, buffers))

    def show(self, state: State, code: str, *, as_table: bool, teaching: bool, picture: bool) -> None:
        """Update the buttons; `code` is what "copy" copies, `picture` whether what is shown can be saved as one."""
        history = state.history
        can_undo = history.can_undo or (state.out_of_date and state.plan is not None)
        with self.widget.hold_sync():
            self.widget.disabled = [
                *(_NEED_A_PLAN if state.plan is None else ()),
                *(() if picture else _PICTURES),
                *(() if can_undo else ("undo",)),
                *(() if history.can_redo else ("redo",)),
            ]
            switches = (("pin", state.pinned is not None), ("table", as_table), ("teach", teaching))
            self.widget.pressed = [name for name, on in switches if on]
            self.widget.code = code


def file_name(plan: Plan, ending: str) -> str:
    """'gpt-1.3b_2x4_B128.csv'."""
    safe = "".join(c if c.isalnum() or c in "-_." else "-" for c in plan.model.name)
    c = plan.cluster
    return f"{safe}_{c.nodes}x{c.devices_per_node}_B{plan.options.num_microbatches}.{ending}"
