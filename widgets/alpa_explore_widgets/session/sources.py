"""Models and clusters: those of the catalogue and the presets, and those that the user gave to `explore`."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from alpa_explore.cluster import Cluster, Link
from alpa_explore.cluster.precisions import LOW_TENSORS, RECIPES, precision_name, tensors_of
from alpa_explore.cluster.presets import load_preset, preset_names
from alpa_explore.errors import AlpaExploreError, ClusterError, OptionError
from alpa_explore.graph import PRECISIONS, TrainingGraph
from alpa_explore.models import CatalogEntry, catalog
from alpa_explore.plans.plan import Plan
from alpa_explore_widgets.session import tuning
from alpa_explore_widgets.session.settings import MODEL_SETTINGS, Settings, cluster_text, device_setting, is_mixture

_FAMILIES = {
    "gpt": "GPT",
    "llama": "Llama",
    "qwen3": "Qwen3",
    "mixtral": "Mixtral",
    "deepseek": "DeepSeek",
    "gpt-oss": "GPT-OSS",
    "vit": "ViT",
    "dit": "DiT",
    "moe": "GShard-MoE",
    "wide-resnet": "Wide-ResNet",
    "mlp": "MLP",
}
_TENSORS, _PRODUCTS = "Weights and activations", "Products alone, the rest in bfloat16"
"""Groups of precisions."""
HALF = "float16"
"""The dtype whose peak rate is a setting."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UserModel:
    """A model that the user gave: its graph, or a function that captures it (on the planner's thread, so that the cell
    returns at once)."""

    name: str
    samples: int
    """In one microbatch."""
    capture: Callable[..., TrainingGraph]
    """Takes precision=…, unless the precision is fixed."""
    precision: str = ""
    """The precision of a captured graph, which is fixed; '' for a module, which can be captured in any."""
    launch_arguments: Mapping[str, Any] | None = None
    """What `ax.launch` needs to train it: the module, its example inputs and its loss. None for a graph."""


class Sources:
    """Turns the names in the settings into a graph and a cluster, and lists what the controls offer."""

    def __init__(
        self,
        capture: Callable[..., TrainingGraph],
        model: UserModel | None = None,
        cluster: Cluster | None = None,
        config: CatalogEntry | None = None,
    ) -> None:
        """`config`: a model from a Hugging Face config, offered beside those of the catalogue."""
        self.user_model, self._capture, self._config = model, capture, config
        self._user_clusters = {} if cluster is None else {device_setting(cluster): cluster}
        self._graphs: dict[tuple[str, int, str | None, int | None], TrainingGraph] = {}

    def graph(self, settings: Settings) -> TrainingGraph:
        """The captured model. Capturing takes seconds; the last few graphs are kept."""
        dtype = tensors_of(settings.precision)
        key = (settings.model, settings.microbatch, dtype, settings.sequence)
        if key not in self._graphs:
            precision = {} if dtype is None else {"precision": dtype}
            model = self.user_model if self.is_user_model(settings.model) else None
            if model is not None and model.precision and dtype not in (None, model.precision):
                raise OptionError(
                    "The precision of a captured graph is fixed",
                    found=f"{dtype} for {model.name} in {model.precision}",
                    remedy="Give explore the module with example_inputs, or capture it with precision=… again.",
                )
            if model is not None and settings.sequence is not None:
                raise OptionError(
                    "The sequence of your own model is that of its inputs",
                    found=f"sequence {settings.sequence:,} for {model.name}",
                    remedy="Empty the field, or give explore example_inputs of that length.",
                )
            if model is None:
                reference = catalog.entry(self._entry(settings.model).reference, settings.sequence).reference
                graph = self._capture(reference, settings.microbatch, **precision)
            else:
                graph = model.capture(**({} if model.precision else precision))
            self._graphs = dict(list(self._graphs.items())[-(tuning.KEPT_GRAPHS - 1) :]) | {key: graph}
        return self._graphs[key]

    def reference(self, settings: Settings) -> str:
        """What names the model, with the length of its samples, in `models.catalog`. OptionError for the user's own."""
        if self.is_user_model(settings.model):
            raise OptionError(
                "Layouts are enumerated for a model by its sizes",
                found=f"{settings.model}, a model of your own",
                remedy="Choose a decoder of the catalogue, or give explore a Hugging Face config.json. Search has "
                "baselines for any model: Try baselines.",
            )
        return catalog.entry(self._entry(settings.model).reference, settings.sequence).reference

    def cluster(self, settings: Settings) -> Cluster:
        """The cluster. ClusterError for impossible numbers of nodes or devices."""
        cluster = with_overrides(self.preset_cluster(settings), settings).in_precision(settings.precision)
        if settings.expert_imbalance == cluster.device.expert_imbalance:
            return cluster
        return cluster.with_changes(expert_imbalance=settings.expert_imbalance)

    def preset_cluster(self, settings: Settings) -> Cluster:
        """The cluster with the device and links of the preset, without the overrides of the settings."""
        given = self._user_clusters.get(settings.device)
        if given is None and is_mixture(settings.device):
            given = Cluster.parse(settings.device)
        if given is not None and given.others:
            if (given.nodes, given.devices_per_node) != (settings.nodes, settings.devices_per_node):
                raise ClusterError(
                    "Unlike nodes are counted by kind",
                    found=f"{settings.nodes} × {settings.devices_per_node} devices in place of {given}",
                    remedy=f"Set {given.nodes} nodes of {given.devices_per_node}, or give explore another cluster.",
                )
            return given
        if given is not None:
            return given.resized(settings.nodes, settings.devices_per_node)
        return Cluster.parse(cluster_text(settings))

    def model_choices(self) -> list[list[str]]:
        """[name, text, group] for the list of models, the user's model first."""
        model = self.user_model
        yours = [m.name for m in (model, self._config) if m is not None]
        listed = [[name, name, "Your model"] for name in yours]
        entries = [catalog.entry(name) for name in catalog.names() if not self.is_user_model(name)]
        small = "Small, for trying"
        return listed + [[e.name, e.name, small if e.name.endswith("-tiny") else _FAMILIES[e.family]] for e in entries]

    def device_choices(self) -> list[list[str]]:
        """[name, text, group] for the list of devices, without the aliases of presets."""
        names = [name for name in preset_names() if load_preset(name)[0].name == name]
        return [[name, name, ""] for name in (*(n for n in self._user_clusters if n not in names), *names)]

    def add_cluster(self, cluster: Cluster) -> None:
        """Offer the device of `cluster`, with its links, in place of one of the same name."""
        self._user_clusters = {**self._user_clusters, device_setting(cluster): cluster}

    def solvers(self) -> tuple[str, ...]:
        """Names of the solvers."""
        from alpa_explore.intra_op.solve import SOLVERS  # late: it loads HiGHS

        return tuple(SOLVERS)

    def precisions(self, model: str) -> list[list[str]]:
        """[name, text, group] of the precisions of `model`; '' stands for its default. Those of products alone come
        last."""
        dtypes: Sequence[str]
        if not self.is_user_model(model):
            default, dtypes = f"{self._entry(model).precision} (default)", PRECISIONS
        elif self.user_model is not None and self.user_model.precision:
            default, dtypes = f"{self.user_model.precision}, as captured", (self.user_model.precision,)
        else:
            default, dtypes = "as in the module", PRECISIONS
        tensors = [["", default, ""], *([name, name, _TENSORS] for name in dtypes)]
        if LOW_TENSORS not in dtypes:
            return tensors
        return [*tensors, *([precision_name(name), recipe.label, _PRODUCTS] for name, recipe in RECIPES.items())]

    def preset_figures(self, settings: Settings) -> dict[str, float | None]:
        """Setting -> its value in the preset of the device; None for an impossible cluster."""
        try:
            cluster = self.preset_cluster(settings)
        except AlpaExploreError:  # impossible numbers of nodes or devices are reported when they are used
            return dict.fromkeys(("memory_bytes", "peak_flops", "inside_bandwidth", "between_bandwidth"))
        return dict(_device_figures(cluster))

    def launch_arguments(self, plan: Plan) -> Mapping[str, Any]:
        """The arguments of `ax.launch` besides the plan: none for a recipe, else the module that the user gave to this
        session, which is sent to the ranks. OptionError where there is neither."""
        model, recipe = self.user_model, plan.model.recipe
        if (
            model is not None
            and model.launch_arguments
            and model.name == plan.model.name
            and not catalog.is_reference(recipe)
        ):
            return model.launch_arguments
        if recipe is None:
            raise OptionError(
                "The model of this plan is not available, so it cannot be sent to the ranks",
                found="a plan or a captured graph, without the module and its weights",
                remedy="Give explore the module and example_inputs=…, or call ax.launch(explorer.plan, model=…, "
                "example_inputs=…) in a cell.",
            )
        return {}

    def microbatches(self, model: str) -> list[int]:
        """Possible numbers of samples in a microbatch: the divisors of a catalogue model's global batch, or the one
        number of the user's model."""
        if self.user_model is not None and model == self.user_model.name:
            return [self.user_model.samples]
        batch = self._entry(model).global_batch
        return [m for m in range(1, batch + 1) if batch % m == 0]

    def may_have_experts(self, model: str) -> bool:
        """Whether a model of the catalogue or of a config routes tokens to experts; a model of one's own may."""
        if self.is_user_model(model):
            return True
        config = self._entry(model).config
        return "experts" in getattr(config, "text", "") or getattr(config, "experts", None) is not None

    def describe(self, model: str) -> str:
        """One line about the model."""
        if self.user_model is not None and model == self.user_model.name:
            return f"captured with {self.user_model.samples} samples per microbatch"
        return self._entry(model).description

    def initial_batch(
        self, model: str, num_microbatches: int | None, global_batch: int | None = None
    ) -> tuple[int, int]:
        """(samples in a microbatch, B) to begin with; B and the samples of an iteration are the paper's unless they are
        given. OptionError where they are no whole number of microbatches."""
        if self.is_user_model(model):
            samples = self.microbatches(model)[0]
            count = num_microbatches or max(1, (global_batch or 32 * samples) // samples)
            if global_batch not in (None, samples * count):
                raise OptionError(
                    "The microbatch of your own model is that of its inputs",
                    found=f"global_batch={global_batch} in {count} microbatches of {samples}",
                    remedy=f"Give a multiple of {samples}, and no num_microbatches, or other example_inputs.",
                )
            return samples, count
        entry = self._entry(model)
        count = num_microbatches or entry.num_microbatches
        return catalog.microbatch_size(entry, count, global_batch), count

    def model_defaults(self, model: str) -> dict[str, Any]:
        """The settings that do not carry over to another model (`MODEL_SETTINGS`), at their defaults for `model`."""
        microbatch, num_microbatches = self.initial_batch(model, None)
        defaults = {field.name: field.default for field in fields(Settings) if field.name in MODEL_SETTINGS}
        return defaults | {"microbatch": microbatch, "num_microbatches": num_microbatches, "num_layers": None}

    def default_sequence(self, model: str) -> int | None:
        """Tokens of a sample; None where the model has no such setting."""
        return None if self.is_user_model(model) else self._entry(model).sequence

    def code_name(self, model: str) -> str:
        """What names a model in code: a config in full, as its path may not be known any more; '' for one's own."""
        return "" if self.is_user_model(model) else self._entry(model).reference

    def _entry(self, name: str) -> CatalogEntry:
        return self._config if self._config is not None and name == self._config.name else catalog.entry(name)

    def is_user_model(self, name: str) -> bool:
        """Whether this is the model that the user gave, not one of a name or a config."""
        return self.user_model is not None and name == self.user_model.name


def with_overrides(cluster: Cluster, settings: Settings) -> Cluster:
    """`cluster` with the memory, peak rate and bandwidths that the settings give."""
    changes: dict[str, Any] = {}
    if settings.memory_bytes is not None:
        changes["memory_bytes"] = int(settings.memory_bytes)
    if settings.peak_flops is not None:
        factor = settings.peak_flops / cluster.device.peak(HALF)
        changes["peak_flops"] = {dtype: rate * factor for dtype, rate in cluster.device.peak_flops.items()}
    for field, bandwidth in (("inside_node", settings.inside_bandwidth), ("between_nodes", settings.between_bandwidth)):
        link: Link = getattr(cluster, field)
        if bandwidth is not None:
            changes[field] = replace(link, bandwidth=bandwidth)
    return cluster.with_changes(**changes) if changes else cluster


def device_overrides(cluster: Cluster, preset: Cluster) -> dict[str, float]:
    """The settings with which `with_overrides` turns `preset` into `cluster`."""
    preset_values = _device_figures(preset)
    return {name: value for name, value in _device_figures(cluster).items() if value != preset_values[name]}


def _device_figures(cluster: Cluster) -> dict[str, float]:
    """Setting -> its value in `cluster`."""
    return {
        "memory_bytes": float(cluster.device.memory_bytes),
        "peak_flops": cluster.device.peak(HALF),
        "inside_bandwidth": cluster.inside_node.bandwidth,
        "between_bandwidth": cluster.between_nodes.bandwidth,
    }


def model_of_plan(plan: Plan) -> UserModel | None:
    """The model of a finished plan: None for one of the catalogue, else a UserModel that cannot be captured."""
    name = plan.model.recipe or plan.model.name
    if catalog.is_reference(name):
        return None

    def capture() -> TrainingGraph:
        raise OptionError(
            "The model of this plan is not available",
            found=f"a plan of {name}, without the model itself",
            remedy="B can be changed. To plan again, give explore the model or its graph instead of the plan.",
        )

    return UserModel(name=name, samples=plan.model.samples, capture=capture, precision=plan.model.precision)


def config_of_plan(plan: Plan) -> CatalogEntry | None:
    """The model of a plan whose recipe is a Hugging Face config; None for any other."""
    recipe = plan.model.recipe
    if recipe is None or not catalog.is_reference(recipe):
        return None
    found = catalog.entry(recipe)
    return found if found.family == catalog.CONFIG_FAMILY else None


def user_model(model: Any, example_inputs: Any, options: dict[str, Any]) -> UserModel:
    """The model that was given to `explore`; `options` are those of `ax.capture`. OptionError if it is neither a graph
    nor a module with example inputs."""
    if isinstance(model, TrainingGraph):
        return UserModel(name=model.name, samples=model.samples, capture=lambda: model, precision=model.precision)
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
        from alpa_explore.tracing.capture import capture as capture_module  # late: torch

        return capture_module(model, example_inputs, name=name, precision=precision, **options)

    return UserModel(
        name=name,
        samples=_first_dim(example_inputs),
        capture=capture,
        launch_arguments={"model": model, "example_inputs": example_inputs, "loss": options.get("loss")},
    )


def _first_dim(example_inputs: Any) -> int:
    """The size of the first dim of the first input: the samples of a microbatch; 1 for an input without a shape."""
    inputs = example_inputs.values() if isinstance(example_inputs, Mapping) else example_inputs
    first = next(iter(inputs), None) if isinstance(inputs, Iterable) and not hasattr(inputs, "shape") else inputs
    shape = getattr(first, "shape", None) or (1,)
    return int(shape[0])
