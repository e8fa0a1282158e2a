"""The settings in which two plans differ, in words, for comparisons."""

from typing import NamedTuple

from alpa_explore import units
from alpa_explore.inter_op.options import phrases
from alpa_explore.plans.phrases import precision_phrase
from alpa_explore.plans.value import PlanValue


class Difference(NamedTuple):
    """One setting and its values in the old and in the new plan."""

    name: str
    old: str
    new: str

    def __str__(self) -> str:
        return f"{self.name} {self.old} → {self.new}"


def differences(old: PlanValue, new: PlanValue) -> tuple[Difference, ...]:
    """Every setting in which `new` differs from `old`."""
    before, after = settings_in_words(old), settings_in_words(new)
    names = [*before, *(name for name in after if name not in before)]
    pairs = [Difference(name, before.get(name, "–"), after.get(name, "–")) for name in names]
    return tuple(pair for pair in pairs if pair.old != pair.new)


def recompute_word(plan: PlanValue) -> str:
    """What a plan was asked to recompute, in a word: 'on', 'off', a name, or 'where needed'."""
    asked = plan.options.rematerialization
    return {"auto": "where needed", "": "on" if plan.model.rematerialization else "off"}.get(asked, asked)


def settings_in_words(plan: PlanValue) -> dict[str, str]:
    """Setting -> its value, for people; options of the pipeline only where they are not the paper's."""
    o, model, cluster = plan.options, plan.model, plan.cluster
    devices = [kind.device for kind in cluster.kinds]
    return {
        "model": model.name,
        "samples per microbatch": f"{model.samples:,}",
        "B": f"{o.num_microbatches:,}",
        "precision": precision_phrase(model, cluster),
        "optimizer": model.optimizer,
        "recompute": recompute_word(plan),
        "cluster": str(cluster),
        "memory of a device": " or ".join(units.bytes_(device.memory_bytes) for device in devices),
        "peak of a device": " or ".join(units.flops_per_second(device.peak(model.precision)) for device in devices),
        "link inside a node": " or ".join(units.bytes_per_second(k.inside_node.bandwidth) for k in cluster.kinds),
        "network between nodes": units.bytes_per_second(cluster.between_nodes.bandwidth),
        "δ": f"{o.delta:g}",
        "layers": f"{o.num_layers:,}",
        "solver": o.solver,
        "boundaries": ", ".join(o.boundaries) or "clustered",
        "baseline": o.baseline or "none",
        "spec constraints": "; ".join(map(str, o.spec_constraints)) or "none",
        **phrases(o.pipeline),
    }
