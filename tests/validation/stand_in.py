"""A pricer for tests: seconds by FLOPs at half the peak, bytes by 18 a parameter. It is importable by processes."""

from dataclasses import dataclass

from alpa_explore.errors import OptionError
from alpa_explore.uniform_layouts.model_work import ModelKey
from alpa_explore.validation.run_price import RunPrice, RunRequest


@dataclass(frozen=True, slots=True)
class StandIn:
    """Refuses models with a hidden size of `refuses`, and runs on more than `most_devices`."""

    refuses: int = 0
    most_devices: int = 10**9

    def model(self, key: ModelKey) -> tuple[int, int]:
        """(parameters of a block, tokens of a microbatch)."""
        if key.config.hidden == self.refuses:
            raise OptionError("The stand-in refuses this model", found=str(key.config.hidden), remedy="Give another.")
        one = key.config.with_periods(1).parameter_count
        return key.config.parameter_count - one, key.micro_batch * key.config.sequence

    def price(self, model: tuple[int, int], run: RunRequest) -> RunPrice:
        """A pipeline with a bubble, over equal stages."""
        if run.cluster.devices > self.most_devices:
            raise OptionError("Too many devices", found=str(run.cluster.devices), remedy="Give fewer.")
        parameters, tokens = model
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
