"""The row of buttons on top: undo and redo, pin, copy, save, open, export, reset."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from alpa_explore_widgets.elements.fields import Toolbar
from alpa_explore_widgets.session.state import State

BUTTONS = [
    ["undo", "↶ Undo", "Back to the plan before"],
    ["redo", "↷ Redo", "Forth again"],
    ["pin", "Pin", "Compare with this plan from now on; press again to stop"],
    ["table", "Tables", "Show figures as tables"],
    ["teach", "Teach", "Explain each tab, with the numbers of this plan; tabs in the order of the algorithm"],
    ["copy", "Copy code", "Copy Python that makes this plan"],
    ["open", "Open…", "Show a plan file"],
    ["plan", "Save plan", "Save the plan as a file"],
    ["html", "HTML", "Save one page with all figures; it needs no network"],
    ["csv", "CSV", "Save the table of the figure that is shown"],
    ["png", "PNG", "Save a picture of the figure that is shown"],
    ["svg", "SVG", "Save a drawing of the figure that is shown"],
    ["torch", "DTensor code", "Save the plan as PyTorch code: device meshes and placements"],
    ["reset", "Reset", "The settings with which the explorer began"],
]
_NEED_A_PLAN = ("pin", "table", "teach", "plan", "html", "csv", "png", "svg", "torch")


class ToolbarPanel:
    """Hands each press to `press(name, content, buffers)`."""

    def __init__(self, press: Callable[[str, dict[str, Any], list[Any]], None]) -> None:
        self.widget = Toolbar(label="Plan", buttons=BUTTONS, disabled=[*_NEED_A_PLAN, "undo", "redo"])
        self.widget.on_msg(lambda _, content, buffers: press(content.get("kind", ""), content, buffers))

    def show(self, state: State, code: str, *, as_table: bool, teaching: bool = False) -> None:
        """Bring the buttons to the state; `code` is what "copy" copies."""
        history = state.history
        with self.widget.hold_sync():
            self.widget.disabled = [
                *(_NEED_A_PLAN if state.plan is None else ()),
                *(() if history.can_undo else ("undo",)),
                *(() if history.can_redo else ("redo",)),
            ]
            pinned = state.pinned is not None
            switches = (("pin", pinned), ("table", as_table), ("teach", teaching))
            self.widget.pressed = [name for name, on in switches if on]
            self.widget.code = code
