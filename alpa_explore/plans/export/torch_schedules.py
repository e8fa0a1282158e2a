"""The schedules of torch.distributed.pipelining, by the names of `schedules.catalog`."""

from alpa_explore.plans.export.degrees import Limit, PlanDegrees

_SAME = {
    "1f1b": "1F1B",
    "gpipe": "GPipe",
    "interleaved-1f1b": "Interleaved1F1B",
    "zb-v": "ZBVZeroBubble",
    "dualpipe-v": "DualPipeV",
}
_NEAREST = {
    "eager-1f1b": "1F1B",
    "zb-h1": "1F1B",
    "v-half": "ZBVZeroBubble",
    "v-min": "ZBVZeroBubble",
    "dualpipe": "1F1B",
}
"""Schedules that it lacks -> the one with the same stages on each device that is nearest."""


def torch_schedule(degrees: PlanDegrees, limits: list[Limit]) -> str:
    """The name; where it is another schedule, `limits` gets an entry."""
    name = degrees.schedule
    if name in _SAME:
        return _SAME[name]
    limits.append(Limit(what=f"The schedule {name}", instead=f"{_NEAREST[name]}, the nearest that PyTorch has"))
    return _NEAREST[name]
