"""The Fit & scale tab: on which devices the model fits, and how many; how fast it is there, and what it costs."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import ipywidgets as W

from alpa_explore.cluster.presets import load_preset, preset_names
from alpa_explore.errors import AlpaExploreError
from alpa_explore.figures.style import Figure
from alpa_explore.plans.report.tables import Row
from alpa_explore_widgets.elements.fields import NumberField, TextField, plain_button
from alpa_explore_widgets.elements.page_widget import box, set_shown
from alpa_explore_widgets.session.asking.layouts import scaling_question
from alpa_explore_widgets.session.session import Session
from alpa_explore_widgets.session.state import Answer, ScalingQuestion, State
from alpa_explore_widgets.tab_kinds.figure_panel import AskedPanel

_NODES = "1, 2, 4, 8"
_OWN_SHARE = 4
"""The fewest nodes that are asked about first, as a part of those of the controls."""
_DEFAULT_DEVICES = ("h100", "b200")
"""Beside the device of the controls: what people ask for first."""


class FitScalePanel(AskedPanel):
    """Where does the model fit, how fast is it there, and what does it cost?"""

    title = "Fit & scale"
    question = "On which devices does this model fit, how fast is it there, and what does it cost? A click plans there."
    of_plan = False
    nothing = "Nothing is priced yet: press Find out."

    def __init__(self, session: Session) -> None:
        self._asked: tuple[str, ...] = ()
        """The devices that have a field for a price."""
        super().__init__(session, session.layouts.scaling)

    def controls(self) -> list[W.Widget]:
        """What to compare, and the buttons."""
        self.devices = TextField(
            label="Devices", hint=f"Names of devices, with commas: {', '.join(_own_names())}", example="h100, b200"
        )
        self.nodes = TextField(label="Nodes", hint="Numbers of nodes, with commas", value=_NODES, example=_NODES)
        for field in (self.devices, self.nodes):
            field.observe(self._typed, "value")
        self.find = plain_button("Find out", "Price the layouts of the model on each of them", self._ask)
        self.cancel = plain_button("Cancel", "Price no more; what is known stays", self.asked.cancel)
        return [self.devices, self.nodes, self.find, self.cancel]

    def below(self) -> list[W.Widget]:
        """A price for each device, and the progress."""
        self.prices: dict[str, NumberField] = {}
        self.row, self.progress = box("alpa-panel-controls"), W.HTML()
        return [self.row, self.progress]

    def ask_first(self, state: State) -> None:
        """The device of the controls, and others beside it."""
        if not self.devices.value:
            own = state.settings.device
            names = (own, *_DEFAULT_DEVICES) if own in _own_names() else _DEFAULT_DEVICES
            self.devices.value = ", ".join(dict.fromkeys(names))
        if self.nodes.value == _NODES:
            self.nodes.value = nodes_around(state.settings.nodes)
        self._ask()

    def offer(self, answer: Answer[Any], state: State) -> None:
        """Prices and the progress."""
        set_shown(self.cancel, on=answer.running)
        self._offer_prices(answer.question.devices)
        self.show_progress(self.progress, self._progress_html(answer, state))

    def ahead_depends_on(self, state: State) -> tuple[object, ...]:
        """The question but for its batch, and the prices."""
        answer = state.scaling
        if answer is None or answer.running:
            return (None, ())
        batchless = replace(state.settings, num_microbatches=1)
        asked = scaling_question(batchless, answer.question.devices, answer.question.nodes)
        return (asked, self.asked.by_batch.found, () if answer.found is None else answer.found.prices)

    def subject(self, state: State) -> tuple[str, str]:
        """The model, and the devices."""
        answer = state.scaling
        where = "no devices" if answer is None else ", ".join(answer.question.devices)
        return (state.settings.model if answer is None else answer.question.model), where

    def draw_answer(self, answer: Answer[Any], state: State, theme: str) -> Figure:
        """See `alpa_explore.figures.layouts`."""
        from alpa_explore.figures.layouts import scaling_curve_figure  # late: plotly takes seconds

        return scaling_curve_figure(answer.found, theme=theme)

    def rows(self, state: State) -> Sequence[Row]:
        """One row for each device and number of nodes."""
        found = None if state.scaling is None else state.scaling.found
        if found is None:
            return []
        from alpa_explore.uniform_layouts.report import scaling_table

        return scaling_table(found)

    def _progress_html(self, answer: Answer[ScalingQuestion], state: State) -> str:
        """What is under way, or that the answer is for other settings; '' otherwise."""
        question, settings = answer.question, state.settings
        if answer.running:
            points = () if answer.found is None else answer.found.points
            done = sum(point.state not in ("waiting", "fits") for point in points)
            total = max(len(question.devices) * len(question.nodes), 1)
            return (
                f'<div class="alpa-progress" role="status"><progress aria-label="Pricing clusters" max="{total}" '
                f'value="{done}"></progress>{done} of {total} clusters are known; {self.step(answer)}</div>'
            )
        batch = settings.microbatch * settings.num_microbatches
        if (settings.model, settings.sequence, settings.precision, batch) != (
            *(question.model, question.sequence, question.precision),
            question.global_batch,
        ) and not state.replanning:
            of = f"{question.model} with a global batch of {question.global_batch:,}"
            return self.note(f"This is {of}: press Find out for the present settings.")
        if answer.found is not None and not answer.found.whole:
            return self.note("Cancelled: these are the clusters that were priced by then.")
        return ""

    def _offer_prices(self, devices: Sequence[str]) -> None:
        """A field for each device; what was typed stays."""
        if tuple(devices) == self._asked:
            return
        self._asked = tuple(devices)
        for device in devices:
            if device not in self.prices:
                field = NumberField(
                    label=f"{device.upper()}",
                    hint=f"Dollars for an hour of one {device.upper()}; empty: no cost is computed",
                    unit="$/h",
                    optional=True,
                    empty="no price",
                    minimum=0.001,
                    maximum=1e6,
                )
                field.observe(self._priced, "value")
                self.prices[device] = field
        self.row.children = [self.prices[device] for device in devices]

    def _given_prices(self) -> dict[str, float]:
        return {d: price for d in self._asked if d in self.prices and (price := self.prices[d].value) is not None}

    def _priced(self, _change: Mapping[str, Any]) -> None:
        self.session.layouts.set_prices(self._given_prices())

    def _typed(self, _change: Mapping[str, Any]) -> None:
        """Say what is wrong as soon as it is typed, and no longer than it is."""
        self.devices.problem, self.nodes.problem = _devices(self.devices.value)[1], _nodes(self.nodes.value)[1]

    def _ask(self) -> None:
        """Ask for what is typed; what is not a device or a number of nodes is said in its field."""
        devices, self.devices.problem = _devices(self.devices.value)
        nodes, self.nodes.problem = _nodes(self.nodes.value)
        if not self.devices.problem and not self.nodes.problem:
            self._offer_prices(devices)
            self.session.layouts.ask_scaling(devices, nodes, self._given_prices())


def _own_names() -> list[str]:
    """The devices without their aliases."""
    return [name for name in preset_names() if load_preset(name)[0].name == name]


def nodes_around(own: int) -> str:
    """The numbers of nodes that are asked about first: from a quarter of those of the controls, four doublings."""
    fewest = 1 << (max(1, own // _OWN_SHARE).bit_length() - 1)
    return ", ".join(str(n) for n in sorted({own, *(fewest << k for k in range(4))}))


def _devices(text: str) -> tuple[tuple[str, ...], str]:
    """(the devices that a text names, what is wrong with it)."""
    names = [part.strip().lower() for part in text.split(",") if part.strip()]
    if not names:
        return (), "Give a device, for example h100."
    found = []
    for name in names:
        try:
            found.append(load_preset(name)[0].name)
        except AlpaExploreError as error:
            return (), f"{error.what}: {error.found}. {error.remedy}"
    return tuple(dict.fromkeys(found)), ""


def _nodes(text: str) -> tuple[tuple[int, ...], str]:
    """(the numbers of nodes that a text names, what is wrong with it)."""
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if not parts or not all(part.isdecimal() and 1 <= int(part) <= 4096 for part in parts):
        return (), f"{text or 'Nothing'} is no list of numbers of nodes, such as {_NODES}."
    return tuple(sorted({int(part) for part in parts})), ""
