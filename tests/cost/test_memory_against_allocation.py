"""The memory that a plan predicts for one device, compared with what PyTorch allocates for the same training step.

torch's own tracker follows every storage from its making to its end. The second microbatch is looked at: gradients and
optimizer state are there then, as the plan counts them.
"""

from dataclasses import dataclass

import pytest
import torch
from torch import nn
from torch.distributed._tools.mem_tracker import MemTracker

import alpa_explore as ax
from alpa_explore.models.catalog import build

SAMPLES = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Allocated:
    """Peak of the allocated bytes."""

    kept: int
    """Weights, gradients, optimizer state."""
    total: int


def allocated(module: nn.Module, inputs: list[torch.Tensor]) -> Allocated:
    optimizer = torch.optim.Adam(module.parameters(), foreach=False)
    module(*inputs).backward()
    optimizer.step()
    tracker = MemTracker()
    tracker.track_external(module, optimizer, *inputs)
    with tracker:
        module(*inputs).backward()
    (peak,) = (found for device, found in tracker.get_tracker_snapshot("peak").items() if device.type == "cpu")
    parameters = sum(p.numel() * p.element_size() for p in module.parameters())
    return Allocated(kept=4 * parameters, total=peak["Total"])


@pytest.mark.sweep(kept=2, in_turn=True)
@pytest.mark.slow
@pytest.mark.parametrize("name", ["gpt-tiny", "moe-tiny", "mlp-tiny", "wide-resnet-tiny"])
def test_the_peak_of_a_device_is_what_pytorch_allocates(name: str) -> None:
    module, examples = build(name, SAMPLES)
    module.to_empty(device="cpu")
    for parameter in module.parameters():
        nn.init.normal_(parameter, std=0.02)
    inputs = [torch.zeros(e.shape, dtype=e.dtype) for e in examples]
    graph = ax.capture(module, inputs, name=name, precision="float32", rematerialization=False)
    stage = ax.plan(graph, "1x1:cpu", num_microbatches=2, num_layers=1, scheduler="serial").stages[0]
    allocated_bytes = allocated(module, inputs)
    assert stage.weight_bytes == pytest.approx(allocated_bytes.kept, rel=0.01)
    # The prediction may be too high (a kernel can overwrite its input), but hardly too low.
    assert 0.97 * allocated_bytes.total <= stage.peak_bytes <= 1.15 * allocated_bytes.total
