"""A control for each setting: the two sliders that stay in view, and the left column."""

from collections.abc import Callable
from typing import Any

import ipywidgets as W

from alpa_explore.errors import ClusterError
from alpa_explore_widgets.elements.fields import choice_field
from alpa_explore_widgets.elements.page_widget import box, set_shown
from alpa_explore_widgets.panels.setting_controls import B_STOPS, WORDS, controls_of, fold, pair, row
from alpa_explore_widgets.session.session import Session
from alpa_explore_widgets.session.settings import DEVICE_SETTINGS, Settings
from alpa_explore_widgets.session.state import Fault, State

BATCH, MICROBATCH = "batch", "microbatch"
"""What stays when B moves."""


class ControlsPanel:
    """Shows the settings and passes every change to the session."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self.kept_changed: Callable[[], None] = lambda: None
        """Called when B keeps another thing than before."""
        self._updating = False
        """True while `show` assigns the widgets: these changes are not the user's."""
        self._refused: tuple[Fault | None, Settings] = (None, session.store.state.settings)
        """The newest fault, and the settings when it was found."""
        settings, sources = session.store.state.settings, session.sources
        self._controls = controls_of(sources, settings)
        device_fields = [self[name] for name in DEVICE_SETTINGS]
        self.kept = choice_field(**WORDS["kept"], texts={BATCH: "the global batch", MICROBATCH: "the microbatch"})
        self.kept.observe(lambda _: self._kept_changed(), "value")
        self.sliders = box("alpa-sliders", self["num_microbatches"], self["delta"])
        """The settings that are tried most, by sliders that update the plan at once; always in view."""
        self.widget = box(
            "alpa-controls",
            self["model"],
            *fold("Cluster", "Nodes and devices.", row(self["nodes"], self["devices_per_node"], self["device"])),
            *fold(
                "Device figures",
                "Memory, speed and links. Empty fields: the figures of the chosen device.",
                *device_fields,
                expanded=False,
            ),
            *fold(
                "Training",
                "The work of one iteration.",
                pair(self["microbatch"], self.kept),
                self["sequence"],
                self["expert_imbalance"],
                pair(self["schedule"], self["rematerialization"]),
                self["precision"],
            ),
            *fold("Planner", "How layers are made.", self["num_layers"]),
            *fold(
                "More options",
                "Solver, submeshes, what the iteration time is.",
                self["solver"],
                self["submesh_space"],
                self["paper"],
                expanded=False,
            ),
            kind=W.VBox,
        )
        for name, control in self._controls.items():
            control.widget.setting = name
            control.widget.observe(self._changed, ["value", "edits"])

    def __getitem__(self, name: str) -> Any:
        """The widget of a setting."""
        return self._controls[name].widget

    @property
    def keeps_batch(self) -> bool:
        """Whether another B keeps the global batch; a baseline, and a model that the user captured, keep the
        microbatch."""
        plan = self._session.store.state.plan
        is_baseline = plan is not None and bool(plan.options.baseline)  # which the planner would replace
        return self.kept.value == BATCH and not self.kept.disabled and not is_baseline

    def show(self, state: State) -> None:
        """Update the controls (a change of the model changes several)."""
        settings, sources = state.settings, self._session.sources
        self._updating = True
        try:
            choices = [[str(m), f"{m:,}", ""] for m in sources.microbatches(settings.model)]
            if choices != self["microbatch"].choices:
                self["microbatch"].choices = choices
            self["microbatch"].disabled = self.kept.disabled = len(choices) == 1
            stops = self._counts(settings) if self.keeps_batch else B_STOPS
            self["num_microbatches"].stops = [float(stop) for stop in stops]
            precisions = sources.precisions(settings.model)
            if precisions != self["precision"].choices:
                self["precision"].choices = precisions
            self["precision"].disabled = len(precisions) == 2
            tokens = sources.default_sequence(settings.model)
            self["sequence"].default, self["sequence"].disabled = tokens, tokens is None
            set_shown(self["expert_imbalance"], on=sources.may_have_experts(settings.model))
            devices = sources.device_choices()
            if devices != self["device"].choices:
                self["device"].choices = devices
            per_node = self["devices_per_node"]
            if (number := str(settings.devices_per_node)) not in [value for value, *_ in per_node.choices]:
                per_node.choices = [*per_node.choices, [number, f"× {number}", ""]]
            for name, control in self._controls.items():
                control.widget.value = control.to_widget(getattr(settings, name))
            self["model"].note = sources.describe(settings.model)
            count, samples = settings.num_microbatches, settings.microbatch
            self["microbatch"].note = "all replicas"
            self["num_microbatches"].note = f"{count:,} × {samples:,} = {_iteration_words(settings, tokens)}"
            self["expert_imbalance"].note = chosen_for(state)
            for name, value in sources.preset_figures(settings).items():
                self[name].default = self._controls[name].to_widget(value)
            problems = self._problems(state)
            for name, control in self._controls.items():
                control.widget.problem = problems.get(name, "")
        finally:
            self._updating = False

    def _problems(self, state: State) -> dict[str, str]:
        """Setting -> why the planner cannot take its value; without the settings that it can take."""
        if state.fault is not self._refused[0]:
            self._refused = state.fault, state.settings
        fault, refused = self._refused
        problems = {}
        if fault is not None and fault.setting and refused == state.settings:
            problems[fault.setting] = f"{fault.found}. {fault.remedy}"
        for setting, cluster_of in (
            ("nodes", self._session.sources.preset_cluster),
            ("precision", self._session.sources.cluster),
        ):
            try:
                cluster_of(state.settings)
            except ClusterError as error:
                problems[setting] = f"{error.found}. {error.remedy}"
                break
        return problems

    def _changed(self, change: dict[str, Any]) -> None:
        # Under the lock: while a planner thread is in `show`, its assignments must not be taken for the user's.
        with self._session.store.lock:
            if self._updating:
                return
            name = next(n for n, control in self._controls.items() if control.widget is change["owner"])
            # The value is there when its edit count arrives (see `message_order`), whichever of the two comes first.
            value = change["new"] if change["name"] == "value" else change["owner"].value
            setting, settings = self._controls[name].to_setting(value), self._session.store.state.settings
            changes = {name: setting}
            if name == "num_microbatches" and self.keeps_batch and setting != settings.num_microbatches:
                batch, counts = settings.num_microbatches * settings.microbatch, self._counts(settings)
                if setting not in counts:
                    near = sorted(sorted(counts, key=lambda count: abs(count - setting))[:2])
                    self[name].problem = (
                        f"{batch:,} samples are not {setting:,} equal microbatches: {' or '.join(map(str, near))} are. "
                        f"Still {settings.num_microbatches:,}."
                    )
                    self[name].value = settings.num_microbatches  # which calls this again, and changes nothing
                    return
                changes["microbatch"] = batch // setting
            self._session.set(**changes)

    def _counts(self, settings: Settings) -> list[int]:
        """The values of B that divide the global batch into microbatches that the model can have, ascending."""
        batch = settings.num_microbatches * settings.microbatch
        sizes = self._session.sources.microbatches(settings.model)
        return sorted(batch // size for size in sizes if batch % size == 0)

    def _kept_changed(self) -> None:
        with self._session.store.lock:
            self.show(self._session.store.state)
            self.kept_changed()


def _iteration_words(settings: Settings, default_sequence: int | None) -> str:
    """'1,024 samples, 1,048,576 tokens an iteration'."""
    samples, tokens = settings.num_microbatches * settings.microbatch, settings.sequence or default_sequence
    return f"{samples:,} samples{f' · {samples * tokens:,} tokens' if tokens else ''} an iteration"


def chosen_for(state: State) -> str:
    """For which imbalance the choices of a repriced plan were made; '' for a plan that was not repriced."""
    plan = state.plan
    if plan is None or plan.basis is None or not state.estimated or state.following:
        return ""
    if plan.basis.cluster.device.expert_imbalance == plan.cluster.device.expert_imbalance:
        return ""
    return f"The choices are those for {plan.basis.cluster.device.expert_imbalance:g}; Plan finds the best for this."
