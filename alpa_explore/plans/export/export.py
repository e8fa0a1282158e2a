"""`export(plan, target)`: a plan in the form of another tool, with a list of what that form does not express."""

from collections.abc import Callable

from alpa_explore.errors import OptionError, nearest_names
from alpa_explore.plans.export.degrees import PricedAgain
from alpa_explore.plans.export.exported import Exported
from alpa_explore.plans.export.fsdp2 import fsdp2
from alpa_explore.plans.export.megatron import megatron
from alpa_explore.plans.export.nemo import nemo
from alpa_explore.plans.export.torchtitan import torchtitan
from alpa_explore.plans.value import PlanValue

_EXPORTS: dict[str, Callable[[PlanValue, PricedAgain | None], Exported]] = {
    "megatron": megatron,
    "nemo": nemo,
    "torchtitan": torchtitan,
    "fsdp2": fsdp2,
}
TARGETS = tuple(_EXPORTS)
"""megatron: a shell script for Megatron-LM; nemo: a config for Megatron-Bridge; torchtitan: a config; fsdp2: PyTorch
code that runs."""


def export(plan: PlanValue, target: str, again: PricedAgain | None = None) -> Exported:
    """`plan` for `target`, one of `TARGETS`: the text of a file and, as values, the limits that stand at its top.

    `again`: what the layout takes by the plan's prices (`questions.exported`). OptionError for another target, and for
    a plan without strategies.
    """
    if target not in _EXPORTS:
        raise OptionError(
            "Unknown target of an export", found=repr(target), remedy=nearest_names(target, TARGETS, count=4)
        )
    return _EXPORTS[target](plan, again)
