"""A training run that somebody measured, and what the cost model predicts for it."""

from dataclasses import dataclass

TIMED = ("ok",)
"""Values of `status` for a run whose time can be compared."""
RAN = ("ok", "doubtful")
"""Values of `status` for a run that fitted in memory and had a time, be it a doubtful one."""
FAILED = ("oom", "failed")
"""Values of `status` for a run that ended before it had a time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredRun:
    """One row of a table of measured runs. None where the source does not say, or where nothing was predicted."""

    source: str
    """Name of the table, as in `Source.name`."""
    line: int
    """Of the table's file; the header is line 1."""
    device: str
    """As the device presets are named."""
    software: str
    """As the software profiles are named."""
    gpus: int
    gpus_per_node: int = 8
    model: str
    """As its source names it."""
    sizes: str = ""
    """'24 layers, hidden 1,024, 16 heads, vocabulary 50,257': tells models of one name apart."""
    sequence: int | None = None
    """Tokens of a sample."""
    global_batch: int | None = None
    """Samples of an iteration."""
    micro_batch: int | None = None
    """Samples of a microbatch of one data-parallel replica."""
    microbatches: int | None = None
    tensor: int | None = None
    pipeline: int | None = None
    virtual: int | None = None
    """Stages of a device under an interleaved schedule."""
    data: int | None = None
    context: int | None = None
    expert: int | None = None
    zero_stage: int | None = None
    recompute: str = ""
    precision: str = ""
    experts: bool = False
    """Whether the model has experts."""
    token_flops: float | None = None
    """FLOPs of a token, which tell the size of the model that it meets."""
    overhead: float | None = None
    """Share of the predicted time that the software adds to kernels and links (`likeness.overhead_share`)."""
    predicted_seconds: float | None = None
    """Of an iteration."""
    measured_seconds: float | None = None
    predicted_bytes: float | None = None
    """On the fullest device."""
    measured_bytes: float | None = None
    mfu: float | None = None
    """Share of the devices' peak that the model's FLOPs make of the measured time."""
    fits: bool | None = None
    """Whether the prediction is that it fits in memory."""
    status: str = "ok"
    """'ok', 'oom', 'failed', or 'doubtful': the source doubts its own figure."""
    refused: str = ""
    """Why it has no prediction; empty where it has one."""
    left_out: str = ""
    """Why its time counts in no score, as a fault of the software that it ran on; empty where it counts."""
    held_out: bool = True
    """Whether no figure of the cost model was fitted to this run."""

    @property
    def nodes(self) -> int:
        """Number of nodes, the last one perhaps in part."""
        return -(-self.gpus // max(self.gpus_per_node, 1))

    @property
    def ran(self) -> bool:
        """Whether it fitted and ran."""
        return self.status in RAN

    @property
    def timed(self) -> bool:
        """Whether its time counts: nothing speaks against it."""
        return self.status in TIMED and not self.left_out

    @property
    def failed(self) -> bool:
        """Whether it failed; most sources do not tell lack of memory from a crash."""
        return self.status in FAILED

    @property
    def seconds_error(self) -> float | None:
        """Predicted / measured − 1 of the iteration time; None where the run counts in no score."""
        return _error(self.predicted_seconds, self.measured_seconds) if self.timed else None

    @property
    def bytes_error(self) -> float | None:
        """Predicted / measured − 1 of the memory of a device; None where the run counts in no score."""
        return _error(self.predicted_bytes, self.measured_bytes) if self.ran else None

    @property
    def layout(self) -> str:
        """'TP 2 · PP 4 · DP 8 · ZeRO-1 · 64 × 1 sample'."""
        degrees = (
            ("TP", self.tensor),
            ("PP", self.pipeline),
            ("VP", self.virtual if (self.virtual or 1) > 1 else None),
            ("DP", self.data),
            ("CP", self.context if (self.context or 1) > 1 else None),
            ("EP", self.expert if (self.expert or 1) > 1 else None),
        )
        parts = [f"{name} {degree}" for name, degree in degrees if degree is not None]
        if self.zero_stage:
            parts.append(f"ZeRO-{self.zero_stage}")
        if self.micro_batch is not None:
            count = "" if self.microbatches is None else f"{self.microbatches:,} × "
            parts.append(f"{count}{self.micro_batch:,} sample{'' if self.micro_batch == 1 else 's'}")
        return " · ".join(parts)


def _error(predicted: float | None, measured: float | None) -> float | None:
    return predicted / measured - 1.0 if predicted and measured else None
