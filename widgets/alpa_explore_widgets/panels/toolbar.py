"""The row of buttons at the top: undo and redo, pin, tables, lessons, open, reset, copy, and a menu of exports."""

from collections.abc import Callable
from typing import Any

from alpa_explore_widgets.elements.fields import Toolbar
from alpa_explore_widgets.session.state import State

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
