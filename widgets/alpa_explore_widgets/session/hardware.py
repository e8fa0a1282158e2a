"""Single changes of the hardware: what "2 × network" or "h200 instead" would bring, as settings to be planned."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from alpa_explore.cluster.precisions import LOW_TENSORS, RECIPES, recipe_of, runs
from alpa_explore.questions.explain import COMPUTE, UNKNOWN, limits, mean_parts, time_parts
from alpa_explore_widgets.session import tuning
from alpa_explore_widgets.session.settings import DEVICE_SETTINGS, Settings, is_mixture

if TYPE_CHECKING:
    from alpa_explore.plans.plan import Plan
    from alpa_explore_widgets.session.sources import Sources

_NETWORK, _LINKS, _MEMORY = "the network between nodes", "links inside a node", "memory of a device"
"""Names of limits in `questions.explain`."""
_SAME_CHOICES = "The plan keeps its choices."
_EVEN = "What the plan computes is divided evenly, and nothing is sent or waited for."
_AT_PEAK = "Every device computes the model's FLOPs at its peak, and nothing is sent or waited for."
_WITHOUT_RECOMPUTATION = 2 / 3
"""The least share of a plan's compute that is left without recomputation: of forward, forward again, and backward,
which takes at least as long as forward."""
_FP8 = "fp8-delayed"
"""The recipe of precision 'fp8'."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HardwareChange:
    """One change of the hardware of a plan."""

    name: str
    """'2 × network'."""
    hint: str
    """What is changed, in a sentence."""
    settings: Settings
    """Those of the plan with this change alone."""
    most: float | None = None
    """Share of T that the change can save at most; None where that is not known."""
    why_most: str = ""
    """What `most` assumes, in a sentence."""


def hardware_changes(settings: Settings, plan: Plan, sources: Sources) -> tuple[HardwareChange, ...]:
    """Faster links, more memory, more nodes, other devices and FP8, each alone; `settings` are those of `plan`.

    A model that carries its own cluster of unlike nodes has none: its nodes are counted by kind.
    """
    if is_mixture(settings.device):
        return ()
    # The planner could choose another number of layers for another cluster, which would change two things at once.
    base = replace(settings, num_layers=plan.options.num_layers)
    gains = {limit.name: limit.gain for limit in limits(plan)}
    if UNKNOWN not in gains:  # links that no collective of the plan crosses limit nothing
        gains = {_NETWORK: 0.0, _LINKS: 0.0} | gains
    return tuple(
        HardwareChange(name=name, hint=hint, settings=replace(base, **changes), most=most, why_most=why_most)
        for name, hint, changes, limit in _changes(base, plan, sources)
        for most, why_most in (
            [(gains.get(limit), _SAME_CHOICES)] if limit else [_bound(plan, replace(base, **changes), sources)]
        )
    )


def _bound(plan: Plan, settings: Settings, sources: Sources) -> tuple[float | None, str]:
    """(the most that more nodes, other devices or another precision can save, what that assumes), without planning.

    More of the same devices: no collective, no send and no wait, and what the plan computes divided evenly among them.
    Else: the model's FLOPs at the peak of the devices.
    """
    cluster = sources.cluster(settings)
    if cluster.device == plan.cluster.device:
        parts = mean_parts(time_parts(plan))
        if UNKNOWN in parts:
            return None, ""
        seconds = parts.get(COMPUTE, 0.0) * plan.cluster.devices / cluster.devices
        if any(stage.recomputation or stage.rematerialized for stage in plan.stages):
            seconds *= _WITHOUT_RECOMPUTATION  # with more memory in all, nothing may have to be computed twice
        return max(0.0, 1.0 - seconds / plan.predicted.iteration_seconds), _EVEN
    recipe = recipe_of(settings.precision)
    peak = cluster.device.peak(RECIPES[recipe].dtype if recipe else plan.model.precision)
    utilization = plan.flops_per_second_per_device / peak
    return max(0.0, 1.0 - utilization * plan.cluster.devices / cluster.devices), _AT_PEAK


def _changes(settings: Settings, plan: Plan, sources: Sources) -> Iterator[tuple[str, str, dict[str, Any], str]]:
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
    if recipe_of(settings.precision) == "" and _computes_fp8(plan, settings, sources):
        yield "FP8", "Linear layers in FP8", {"precision": "fp8"}, ""
    listed = {name for name, *_ in sources.device_choices()}
    others = [name for name in tuning.OTHER_DEVICES if name in listed and name != settings.device]
    for name in others[: tuning.OTHER_DEVICES_SHOWN]:
        hint = f"As many devices of the preset {name}, with its links"
        yield f"{name} instead", hint, {"device": name, **dict.fromkeys(DEVICE_SETTINGS)}, ""


def _computes_fp8(plan: Plan, settings: Settings, sources: Sources) -> bool:
    """Whether the devices compute in FP8 and the model can be planned in its tensors."""
    device = plan.cluster.device
    offered = {name for name, *_ in sources.precisions(settings.model)}
    return "fp8" in offered and LOW_TENSORS in device.peak_flops and runs(_FP8, device.peak_flops, device.block_formats)
