"""Levers: single changes of the settings of a plan, free ones and those that buy hardware, each to be planned."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from alpa_explore.cluster.precisions import LOW_TENSORS, RECIPES, recipe_of, runs
from alpa_explore.plans.plan import Plan
from alpa_explore.questions.explain import COMPUTE, UNKNOWN, limits, mean_parts, time_parts
from alpa_explore_widgets.session import tuning
from alpa_explore_widgets.session.settings import DEVICE_SETTINGS, Settings, is_mixture
from alpa_explore_widgets.session.sources import Sources

_NETWORK, _LINKS, _MEMORY = "the network between nodes", "links inside a node", "memory of a device"
"""Names of limits in `questions.explain`."""
_WITHOUT_RECOMPUTATION = 2 / 3
"""The least share of a plan's compute that is left without recomputation: of forward, forward again, and backward,
which takes at least as long as forward."""
_FP8 = "fp8-delayed"
"""The recipe of precision 'fp8'."""
_CAPTURED = ("model", "microbatch", "precision", "sequence")
"""Settings with another value of which the model is captured again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lever:
    """One change of the settings of a plan."""

    name: str
    """'2 × network'."""
    hint: str
    """What is changed, in a sentence."""
    settings: Settings
    """Those of the plan with this change alone."""
    seconds: float
    """About how long the planner takes for it, from how long it took for the plan."""
    free: bool = True
    """Whether it needs no other hardware."""
    promise: float = 0.0
    """Share of T that it could save at most, as far as that is known. Levers are asked in the order of what they
    promise; nothing else is done with it: no bound is an answer."""


def levers(settings: Settings, plan: Plan, sources: Sources) -> tuple[Lever, ...]:
    """The free ones, then those that buy hardware; `settings` are those of `plan`, whose global batch all keep.

    A model that carries its own cluster of unlike nodes has no other hardware: its nodes are counted by kind.
    """
    # The planner could choose another number of layers for other settings, which would change two things at once.
    base = replace(settings, num_layers=plan.options.num_layers)
    took = dict(plan.statistics.seconds)
    solving = sum(seconds for name, seconds in took.items() if name != "capture")

    def lever(name: str, hint: str, changes: dict[str, Any], **more: Any) -> Lever:
        changed = replace(base, **changes)
        captured = any(getattr(changed, field) != getattr(base, field) for field in _CAPTURED)
        seconds = solving + captured * took.get("capture", 0.0)
        return Lever(name=name, hint=hint, settings=changed, seconds=seconds, **more)

    free = tuple(lever(name, hint, changes) for name, hint, changes in _free(base, plan, sources))
    if is_mixture(settings.device):
        return free
    gains = {limit.name: limit.gain for limit in limits(plan)}
    bought = (
        lever(
            name,
            hint,
            changes,
            free=False,
            promise=gains.get(limit, 0.0) if limit else _bound(plan, replace(base, **changes), sources),
        )
        for name, hint, changes, limit in _bought(base, plan, sources)
    )
    return (*free, *bought)


def _free(settings: Settings, plan: Plan, sources: Sources) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """(name, hint, changed settings)."""
    size, count, layers = settings.microbatch, settings.num_microbatches, settings.num_layers
    assert layers is not None, "that of the plan"
    if recipe_of(settings.precision) == "" and _computes_fp8(plan, settings, sources):
        yield "FP8", "Linear layers in FP8", {"precision": "fp8"}
    offered = sources.microbatches(settings.model)
    for other in (size // 2, 2 * size):
        if other in offered and size * count % other == 0:
            changes = {"microbatch": other, "num_microbatches": size * count // other}
            name = f"microbatches of {other:,}, B {count:,} → {changes['num_microbatches']:,}"
            yield name, f"Of all replicas {other:,} samples where they are {size:,}; the same global batch", changes
    now = settings.rematerialization
    if now is None:
        now = plan.options.rematerialization or bool(plan.model.rematerialization)
    for value, same, name, hint in (
        (False, (False, "none"), "no recomputation", "Hold all activations"),
        ("auto", ("auto",), "recompute what a stage needs", "The planner chooses what each stage computes again"),
        (True, (True, "full", "layers"), "recompute every block", "Hold the inputs of blocks alone"),
        ("norms", ("norms",), "recompute norms and activations", "Saves memory for little time: they compute little"),
        ("attention", ("attention",), "recompute attention", "Hold the inputs of attention alone"),
        ("half", ("half",), "recompute every second block", "Hold the inputs alone of every second block"),
    ):
        if now not in same:
            yield name, hint, {"rematerialization": value}
    smaller = max((value for value in tuning.NEIGHBOUR_DELTAS if value < settings.delta), default=None)
    larger = min((value for value in tuning.NEIGHBOUR_DELTAS if value > settings.delta), default=None)
    for delta in (smaller, larger):
        if delta is not None:
            yield f"δ {settings.delta:g} → {delta:g}", "How unequal the FLOPs of layers may be", {"delta": delta}
    operators = sum(len(layer.operators) for layer in plan.layers)
    for number in (layers // 2, 2 * layers):
        if 1 <= number <= operators:
            yield f"layers {layers} → {number}", "Into how many layers operators are clustered", {"num_layers": number}
    chosen = plan.options.pipeline.schedule
    for schedule in dict.fromkeys(tried.schedule for tried in plan.schedules if tried.iteration_seconds is not None):
        if schedule != chosen:
            yield f"schedule {schedule}", "Another order of the microbatches", {"schedule": schedule}
    if settings.spec_constraints:
        yield "without spec constraints", "The planner chooses all specs", {"spec_constraints": ()}


def _bought(settings: Settings, plan: Plan, sources: Sources) -> Iterator[tuple[str, str, dict[str, Any], str]]:
    """(name, hint, changed settings, the limit of `questions.explain` that it lifts at most)."""
    cluster, nodes = plan.cluster, settings.nodes
    if nodes > 1:
        bandwidth = 2 * cluster.between_nodes.bandwidth
        yield "2 × network", "Twice the bandwidth between nodes", {"between_bandwidth": bandwidth}, _NETWORK
    if settings.devices_per_node > 1:
        bandwidth = 2 * cluster.inside_node.bandwidth
        yield "2 × node links", "Twice the bandwidth inside a node", {"inside_bandwidth": bandwidth}, _LINKS
    yield "2 × memory", "Twice the memory of a device", {"memory_bytes": 2.0 * cluster.device.memory_bytes}, _MEMORY
    yield "+ 1 node", "One node more, for the same batch", {"nodes": nodes + 1}, ""
    if nodes > 1:
        yield "2 × nodes", "Twice as many nodes, for the same batch", {"nodes": 2 * nodes}, ""
    listed = {name for name, *_ in sources.device_choices()}
    others = [name for name in tuning.OTHER_DEVICES if name in listed and name != settings.device]
    for name in others[: tuning.OTHER_DEVICES_SHOWN]:
        hint = f"As many devices of the preset {name}, with its links"
        yield f"{name} instead", hint, {"device": name, **dict.fromkeys(DEVICE_SETTINGS)}, ""


def _bound(plan: Plan, settings: Settings, sources: Sources) -> float:
    """The most that more nodes or other devices can save, without planning; 0 where that is not known.

    More of the same devices: no collective, no send and no wait, and what the plan computes divided evenly among them.
    Else: the model's FLOPs at the peak of the devices.
    """
    cluster = sources.cluster(settings)
    if cluster.device == plan.cluster.device:
        parts = mean_parts(time_parts(plan))
        if UNKNOWN in parts:
            return 0.0
        seconds = parts.get(COMPUTE, 0.0) * plan.cluster.devices / cluster.devices
        if any(stage.recomputation or stage.rematerialized for stage in plan.stages):
            seconds *= _WITHOUT_RECOMPUTATION  # with more memory in all, nothing may have to be computed twice
        return max(0.0, 1.0 - seconds / plan.predicted.iteration_seconds)
    recipe = recipe_of(settings.precision)
    peak = cluster.device.peak(RECIPES[recipe].dtype if recipe else plan.model.precision)
    utilization = plan.flops_per_second_per_device / peak
    return max(0.0, 1.0 - utilization * plan.cluster.devices / cluster.devices)


def _computes_fp8(plan: Plan, settings: Settings, sources: Sources) -> bool:
    """Whether the devices compute in FP8 and the model can be planned in its tensors."""
    device = plan.cluster.device
    offered = {name for name, *_ in sources.precisions(settings.model)}
    return "fp8" in offered and LOW_TENSORS in device.peak_flops and runs(_FP8, device.peak_flops, device.block_formats)
