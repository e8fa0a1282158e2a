"""What the exports to PyTorch share: schedules by the names of torch.distributed.pipelining, and shards of FSDP2."""

from alpa_explore.plans.export.degrees import Limits, PlanDegrees

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


def torch_schedule(degrees: PlanDegrees, limits: Limits) -> str:
    """The name; where it is another schedule, `limits` gets an entry."""
    name = degrees.schedule
    if name in _SAME:
        return _SAME[name]
    limits.note(f"The schedule {name}", f"{_NEAREST[name]}, the nearest that PyTorch has")
    return _NEAREST[name]


def note_shards(degrees: PlanDegrees, limits: Limits) -> None:
    """FSDP2 shards weights wherever it shards anything."""
    if degrees.zero_stage in (1, 2) and degrees.data * degrees.context > 1:
        what = "Only optimizer state is sharded (ZeRO-1)" if degrees.zero_stage == 1 else "Weights are whole (ZeRO-2)"
        limits.note(what, "weights are sharded, too (FSDP2), and gathered once an iteration")
