"""A control for each setting: the two sliders that stay in view, and the left column."""

from collections.abc import Callable
from typing import Any

import ipywidgets as W

from alpa_explore.errors import ClusterError
from alpa_explore.inter_op.options import AUTO
from alpa_explore.inter_op.schedule_terms import SCHEDULES
from alpa_explore_widgets.elements.fields import ChoiceField, NumberField
from alpa_explore_widgets.panels.setting_controls import Control, choice, device_figure, fold, integer, pair, row
from alpa_explore_widgets.session.fault import Fault
from alpa_explore_widgets.session.session import Session
from alpa_explore_widgets.session.settings import DEVICE_SETTINGS, Settings
from alpa_explore_widgets.session.sources import HALF, Sources
from alpa_explore_widgets.session.state import State

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
BATCH, MICROBATCH = "batch", "microbatch"
"""What stays when B moves."""
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
"""Choice -> the value of the setting."""


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
        self._controls = {
            **_model_and_cluster_controls(sources, settings),
            **_device_controls(),
            **_training_controls(sources, settings),
            **_planner_controls(sources, settings),
        }
        device_fields = [self[name] for name in DEVICE_SETTINGS]
        self.kept = ChoiceField(
            label="B keeps",
            hint="What stays when B moves. With the global batch, microbatches change their size: T is estimated at "
            "once, and the planner runs. With the microbatch, the global batch grows: the plan follows at once.",
            choices=[[BATCH, "the global batch", ""], [MICROBATCH, "the microbatch", ""]],
            value=BATCH,
        )
        self.kept.observe(lambda _: self._kept_changed(), "value")
        self.sliders = W.HBox([self["num_microbatches"], self["delta"]])
        """The settings that are tried most, by sliders that update the plan at once; always in view."""
        self.sliders.add_class("alpa-sliders")
        self.widget = W.VBox(
            [
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
            ]
        )
        self.widget.add_class("alpa-controls")
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
            self["expert_imbalance"].layout.display = "" if sources.may_have_experts(settings.model) else "none"
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


def _model_and_cluster_controls(sources: Sources, settings: Settings) -> dict[str, Control]:
    per_node = sorted({*DEVICES_PER_NODE, settings.devices_per_node})
    return {
        "model": choice(
            "Model",
            "One of the Alpa paper's models, a small one for trying, or your own. Press Plan after a change.",
            sources.model_choices(),
            settings.model,
        ),
        "nodes": integer("nodes", "Number of nodes (machines) in the cluster.", [], 1, 1024),
        "devices_per_node": choice(
            "devices",
            "Number of devices in each node.",
            [[str(n), f"× {n}", ""] for n in per_node],
            str(settings.devices_per_node),
            str,
            int,
        ),
        "device": choice(
            "device",
            "Kind of accelerator: its peak FLOP/s, memory and links. Press Plan after a change.",
            sources.device_choices(),
            settings.device,
        ),
    }


def _device_controls() -> dict[str, Control]:
    return {
        "memory_bytes": device_figure("Memory", "GiB", "Memory of one device.", MEMORY_STOPS, GIB, 0.001, 4096),
        "peak_flops": device_figure(
            "Peak",
            "TFLOP/s",
            f"Peak rate of one device in {HALF}; the peaks of other dtypes change in proportion.",
            PEAK_STOPS,
            TERA,
            0.001,
            1e6,
        ),
        "inside_bandwidth": device_figure(
            "Link", "GB/s", "Bandwidth between two devices of a node, in one direction.", INSIDE_STOPS, GIGA, 0.001, 1e5
        ),
        "between_bandwidth": device_figure(
            "Network", "GB/s", "Network bandwidth of one node, shared by its devices.", BETWEEN_STOPS, GIGA, 0.001, 1e5
        ),
    }


def _training_controls(sources: Sources, settings: Settings) -> dict[str, Control]:
    return {
        "num_microbatches": integer(
            "B, microbatches",
            "Number of microbatches in one iteration. What stays is chosen under Training.",
            B_STOPS,
            1,
            65536,
        ),
        "microbatch": choice(
            "Microbatch",
            "Samples (sequences or images) in one microbatch of all replicas together; layouts name that of one "
            "replica.",
            [[str(settings.microbatch), str(settings.microbatch), ""]],
            str(settings.microbatch),
            str,
            int,
        ),
        "precision": choice(
            "Precision",
            "The dtype of weights and activations, or a lower one of linear layers and experts alone. Press Plan after "
            "a change.",
            sources.precisions(settings.model),
            "",
            lambda value: value or "",
            lambda value: value or None,
        ),
        "sequence": integer(
            "Sequence", "Tokens of a sample. Empty: the model's own.", SEQUENCE_STOPS, 1, 2**27, optional=True
        ),
        "expert_imbalance": Control(
            NumberField(
                label="Expert imbalance",
                hint="Rows of the busiest device over the mean, where devices hold different experts. The plan is "
                "priced again at once, then the planner runs.",
                minimum=1.0,
                maximum=64.0,
                stops=IMBALANCE_STOPS,
            )
        ),
        "schedule": choice(
            "Schedule",
            "The order of forward and backward passes: it sets the bubble and the activations held in memory. The plan "
            "follows at once.",
            [[AUTO, AUTO, "the fastest of those that the software runs"], *([name, name, ""] for name in SCHEDULES)],
            settings.schedule,
        ),
        "rematerialization": choice(
            "Recompute",
            "What the backward pass computes again in place of holding it (in the API: rematerialization): less memory "
            "for more time. Press Plan after a change.",
            [[option, words, ""] for option, (_, words) in _RECOMPUTED.items()],
            _DEFAULT,
            _recomputed_option,
            lambda option: _RECOMPUTED[option][0],
        ),
    }


def _recomputed_option(setting: bool | str | None) -> str:
    """The choice for a setting; parts that no choice offers show as the nearest, 'auto'."""
    names = {True: "full", False: "none", None: _DEFAULT}
    option = setting if isinstance(setting, str) else names[setting]
    return option if option in _RECOMPUTED else "auto"


def _planner_controls(sources: Sources, settings: Settings) -> dict[str, Control]:
    return {
        "delta": Control(
            NumberField(
                label="δ, FLOP tolerance",
                hint="A layer may have up to (1 + δ) times the mean FLOPs of a layer. The plan follows at once.",
                minimum=0.0,
                maximum=100.0,
                stops=DELTA_STOPS,
            )
        ),
        "num_layers": integer(
            "Layers",
            "Number of layers into which the operators are clustered; stages consist of whole layers. Empty: the "
            "planner chooses. Press Plan after a change.",
            LAYER_STOPS,
            1,
            1024,
            optional=True,
        ),
        "solver": choice(
            "Solver",
            "Solver of the sharding problems; all are exact, they differ in speed. Press Plan after a change.",
            [[name, name, ""] for name in sources.solvers()],
            settings.solver,
        ),
        "submesh_space": choice(
            "Submeshes",
            "Submeshes (nodes × devices) that a stage may have. Press Plan after a change.",
            [["all", "all (the paper)", ""], ["power-of-two", "1, 2, 4, … nodes", ""]],
            settings.submesh_space,
        ),
        "paper": choice(
            "Iteration time",
            "What T is: what an iteration takes, sends included, or Eq. 2 of the paper, without sends. Default: Eq. 2 "
            "for the paper's own models on V100 with idealised software. The plan follows at once.",
            [[_DEFAULT, "default", ""], [_OFF, "what it takes", ""], [_ON, "ideal, as in the paper", ""]],
            _DEFAULT,
            lambda value: _DEFAULT if value is None else _ON if value else _OFF,
            _SWITCH.get,
        ),
    }
