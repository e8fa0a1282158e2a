"""A pricer for tests: seconds by FLOPs at half the peak, bytes by 18 a parameter. It is importable by processes."""

from dataclasses import dataclass

from alpa_explore.errors import OptionError
from alpa_explore.validation.run_price import CapturedModel, RunPrice, RunRequest


@dataclass(frozen=True, slots=True)
class StandIn:
    """Refuses models with a hidden size of `refuses`, and runs on more than `most_devices`."""

    refuses: int = 0
    most_devices: int = 10**9

    def __call__(self, model: CapturedModel, run: RunRequest) -> RunPrice:
        """A pipeline with a bubble, over equal stages."""
        key = model.key
        if key.config.hidden == self.refuses:
            raise OptionError("The stand-in refuses this model", found=str(key.config.hidden), remedy="Give another.")
        parameters = key.config.parameter_count - key.config.with_periods(1).parameter_count  # of a block
        tokens = key.micro_batch * key.config.sequence
        if run.cluster.devices > self.most_devices:
            raise OptionError("Too many devices", found=str(run.cluster.devices), remedy="Give fewer.")
        rate = run.cluster.device.peak("bfloat16") / 2
        layout = run.layout
        most = parameters * max(sum(part[1:-1]) for part in run.parts) * layout.chunks / layout.tensor
        stage, size = 6 * most * tokens / rate, 18 * most
        fits = size < run.cluster.device.memory_bytes
        return RunPrice(
            seconds=stage * (layout.microbatches + layout.pipeline - 1),
            bytes=size,
            fits=fits,
            reason="" if fits else f"stage 0: weights {size:.0f} bytes",
        )
