"""Where models and clusters come from: the catalogue and the presets, or what the user gave to `explore`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from alpa_explore.cluster import Cluster, Link
from alpa_explore.cluster.presets import load_preset, preset_names
from alpa_explore.errors import AlpaExploreError, OptionError
from alpa_explore.graph import PRECISIONS, TrainingGraph
from alpa_explore.models import catalog

if TYPE_CHECKING:
    from alpa_explore.plans.plan import Plan
    from alpa_explore_widgets.session.state import Settings

_FAMILIES = {"gpt": "GPT", "moe": "GShard-MoE", "wide-resnet": "Wide-ResNet", "mlp": "MLP"}
HALF = "float16"
"""The precision whose peak rate is a setting."""
KEPT_GRAPHS = 3
"""Captured graphs that stay in memory, so that another delta or cluster does not capture again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnModel:
    """A model that the user gave: its graph, or how to capture it (done on the planner's thread, not in the cell)."""

    name: str
    samples: int
    """In one microbatch."""
    capture: Callable[..., TrainingGraph]
    """Takes precision=…, unless that is fixed."""
    precision: str = ""
    """In which it was captured; '' where it can be captured in any."""
    run_with: Mapping[str, Any] | None = None
    """What `ax.launch` takes to train it: the module, its example inputs and its loss. None where they are not here."""


class Sources:
    """Turns the names in the settings into a graph and a cluster."""

    def __init__(
        self, capture: Callable[..., TrainingGraph], own: OwnModel | None = None, cluster: Cluster | None = None
    ) -> None:
        self.own, self._given, self._capture = own, cluster, capture
        self._graphs: dict[tuple[str, int, str | None], TrainingGraph] = {}

    def graph(self, settings: Settings) -> TrainingGraph:
        """The captured model; slow the first time (seconds), then at hand."""
        key = (settings.model, settings.microbatch, settings.precision)
        if key not in self._graphs:
            asked = {} if settings.precision is None else {"precision": settings.precision}
            own = self.own if self.own is not None and settings.model == self.own.name else None
            if own is not None and own.precision and settings.precision not in (None, own.precision):
                raise OptionError(
                    "The precision of a captured graph is fixed",
                    found=f"{settings.precision} for {own.name} in {own.precision}",
                    remedy="Give explore the module with example_inputs, or capture it with precision=… again.",
                )
            fixed = own is not None and own.precision
            graph = self._capture(*key[:2], **asked) if own is None else own.capture(**({} if fixed else asked))
            self._graphs = dict(list(self._graphs.items())[-(KEPT_GRAPHS - 1) :]) | {key: graph}
        return self._graphs[key]

    def cluster(self, settings: Settings) -> Cluster:
        """The cluster; ClusterError where its numbers cannot be."""
        return with_figures(self.plain_cluster(settings), settings)

    def plain_cluster(self, settings: Settings) -> Cluster:
        """The cluster with the figures of its device as they are."""
        if self._given is not None and settings.device == self._given.device.name:
            return replace(self._given, nodes=settings.nodes, devices_per_node=settings.devices_per_node)
        return Cluster.parse(f"{settings.nodes}x{settings.devices_per_node}:{settings.device}")

    def model_choices(self) -> list[list[str]]:
        """[name, text, group] for the list of models."""
        own = [[self.own.name, self.own.name, "Your model"]] if self.own else []
        taken = {self.own.name} if self.own else set()
        entries = [catalog.entry(name) for name in catalog.names() if name not in taken]
        return own + [[e.name, e.name, "Small, for trying" if e.gpus is None else _FAMILIES[e.family]] for e in entries]

    def device_choices(self) -> list[list[str]]:
        """[name, text, group] for the list of devices."""
        names = [name for name in preset_names() if load_preset(name)[0].name == name]  # aliases stand for the same
        if self._given is not None and self._given.device.name not in names:
            names.insert(0, self._given.device.name)
        return [[name, name, ""] for name in names]

    def solvers(self) -> tuple[str, ...]:
        """Names of the solvers."""
        from alpa_explore.intra_op.solve import SOLVERS  # late: it loads HiGHS

        return tuple(SOLVERS)

    def precisions(self, model: str) -> list[list[str]]:
        """[dtype, text, group] of those that `model` can have; '' stands for its own."""
        if self.own is None or model != self.own.name:
            own, others = f"{catalog.entry(model).precision}, as usual", PRECISIONS
        elif self.own.precision:
            own, others = f"{self.own.precision}, as captured", (self.own.precision,)
        else:
            own, others = "as the model has it", PRECISIONS
        return [["", own, ""], *([name, name, ""] for name in others)]

    def usual_figures(self, settings: Settings) -> dict[str, float | None]:
        """Field of the settings -> what the device has by itself."""
        try:
            cluster = self.plain_cluster(settings)
        except AlpaExploreError:  # nodes or devices that cannot be: said where they are used
            return dict.fromkeys(("memory_bytes", "peak_flops", "inside_bandwidth", "between_bandwidth"))
        return {
            "memory_bytes": float(cluster.device.memory_bytes),
            "peak_flops": cluster.device.peak(HALF),
            "inside_bandwidth": cluster.inside_node.bandwidth,
            "between_bandwidth": cluster.between_nodes.bandwidth,
        }

    def run_with(self, plan: Plan) -> Mapping[str, Any]:
        """What `ax.launch` takes beside the plan: nothing for a recipe, else the user's own module, which this session
        sends to the ranks. OptionError where there is neither."""
        own, recipe = self.own, plan.model.recipe
        if own is not None and own.run_with and own.name == plan.model.name and recipe not in catalog.names():
            return own.run_with
        if recipe is None:
            raise OptionError(
                "The model of this plan is not here, so it cannot be sent to the ranks",
                found="a plan or a captured graph, without the module and its weights",
                remedy="Give explore the module and example_inputs=…, or call ax.launch(explorer.plan, model=…, "
                "example_inputs=…) in a cell.",
            )
        return {}

    def microbatches(self, model: str) -> list[int]:
        """Samples a microbatch of `model` can hold: one value for the user's model, else the divisors of its batch."""
        if self.own is not None and model == self.own.name:
            return [self.own.samples]
        batch = catalog.entry(model).global_batch
        return [m for m in range(1, batch + 1) if batch % m == 0]

    def describe(self, model: str) -> str:
        """One line about the model."""
        if self.own is not None and model == self.own.name:
            return f"captured with {self.own.samples} samples a microbatch"
        entry = catalog.entry(model)
        return entry.description

    def start(self, model: str, num_microbatches: int | None) -> tuple[int, int]:
        """(samples of a microbatch, B) to begin with: the paper's B unless one is given."""
        if self.own is not None and model == self.own.name:
            return self.own.samples, num_microbatches or 32
        entry = catalog.entry(model)
        count = num_microbatches or entry.num_microbatches
        return catalog.microbatch_size(entry, count), count


def with_figures(cluster: Cluster, settings: Settings) -> Cluster:
    """`cluster` with the figures that the settings give in place of its own."""
    changes: dict[str, Any] = {}
    if settings.memory_bytes is not None:
        changes["memory_bytes"] = int(settings.memory_bytes)
    if settings.peak_flops is not None:
        factor = settings.peak_flops / cluster.device.peak(HALF)
        changes["peak_flops"] = {dtype: rate * factor for dtype, rate in cluster.device.peak_flops.items()}
    for field, bandwidth in (
        ("inside_node", settings.inside_bandwidth),
        ("between_nodes", settings.between_bandwidth),
    ):
        link: Link = getattr(cluster, field)
        if bandwidth is not None:
            changes[field] = replace(link, bandwidth=bandwidth)
    return cluster.with_changes(**changes) if changes else cluster


def figures_apart(cluster: Cluster, plain: Cluster) -> dict[str, float]:
    """The fields of the settings with which `plain` becomes `cluster` (see `with_figures`)."""
    pairs = {
        "memory_bytes": (float(cluster.device.memory_bytes), float(plain.device.memory_bytes)),
        "peak_flops": (cluster.device.peak(HALF), plain.device.peak(HALF)),
        "inside_bandwidth": (cluster.inside_node.bandwidth, plain.inside_node.bandwidth),
        "between_bandwidth": (cluster.between_nodes.bandwidth, plain.between_nodes.bandwidth),
    }
    return {name: wanted for name, (wanted, usual) in pairs.items() if wanted != usual}


def planned_model(plan: Plan) -> OwnModel | None:
    """The model of a finished plan: None for one of the catalogue, else one that can be looked at but not captured."""
    name = plan.model.recipe or plan.model.name
    if name in catalog.names():
        return None

    def capture() -> TrainingGraph:
        raise OptionError(
            "The model of this plan is not here",
            found=f"a plan of {name}, without the model itself",
            remedy="Moving B works. To plan anew, give explore the model or its graph instead of the plan.",
        )

    return OwnModel(name=name, samples=plan.model.samples, capture=capture, precision=plan.model.precision)


def own_model(model: Any, example_inputs: Any, options: dict[str, Any]) -> OwnModel:
    """What `explore` was given. OptionError where it is neither a graph nor a module with inputs."""
    if isinstance(model, TrainingGraph):
        return OwnModel(name=model.name, samples=model.samples, capture=lambda: model, precision=model.precision)
    if not callable(getattr(model, "named_parameters", None)):
        raise OptionError(
            "explore takes a catalogue name, a captured graph or an nn.Module",
            found=f"a {type(model).__name__}",
            remedy="Give a name such as 'gpt-tiny', the result of ax.capture(…), or a module with example_inputs=…",
        )
    if example_inputs is None:
        raise OptionError(
            "A module is captured by running it on example inputs",
            found="no example_inputs",
            remedy="Give one microbatch, for example explore(model, example_inputs=(tokens, targets)).",
        )
    name = options.pop("name", None) or type(model).__name__

    def capture(precision: str | None = None) -> TrainingGraph:
        from alpa_explore.tracing.capture import capture as run  # late: torch

        return run(model, example_inputs, name=name, precision=precision, **options)

    given = example_inputs.values() if isinstance(example_inputs, Mapping) else example_inputs
    first = next(iter(given), None) if isinstance(given, Iterable) and not hasattr(given, "shape") else given
    shape = getattr(first, "shape", None) or (1,)
    return OwnModel(
        name=name,
        samples=int(shape[0]),
        capture=capture,
        run_with={"model": model, "example_inputs": example_inputs, "loss": options.get("loss")},
    )
