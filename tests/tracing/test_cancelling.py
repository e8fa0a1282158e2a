"""A cancelled capture ends at once, in the forward and the backward pass, and leaves no changes behind."""

import threading
import warnings
from functools import partial

import pytest
import torch
from torch import nn

import alpa_explore as ax
from alpa_explore.errors import CancelledError
from alpa_explore.tracing.cancelling import cancelled_by

BLOCKS = 12


class Blocks(nn.Module):
    """Calls `seen` with the number of every block that is run, forwards (1, 2, …) and backwards (-1, -2, …)."""

    def __init__(self, seen):
        super().__init__()
        self.blocks, self.seen = nn.ModuleList(nn.Linear(4, 4) for _ in range(BLOCKS)), seen

    def forward(self, x):
        for number, block in enumerate(self.blocks, 1):
            self.seen(number)
            x = block(x)
            x.register_hook(lambda gradient, number=number: self.seen(-number))
        return x.sum()


def stopping_at(place):
    cancel, seen = threading.Event(), []

    def see(number):
        seen.append(number)
        if number == place:
            cancel.set()

    return Blocks(see), cancel, seen


@pytest.mark.slow
@pytest.mark.parametrize("place", [1, 5, -BLOCKS + 2])
def test_no_block_is_traced_after_a_cancel(place):
    model, cancel, seen = stopping_at(place)
    with warnings.catch_warnings(record=True) as said, cancelled_by(cancel), pytest.raises(CancelledError):
        ax.capture(model, torch.empty(2, 4))
    assert seen[-1] == place
    assert not said
    assert not torch.is_anomaly_enabled()
    cancel.clear()
    assert ax.capture(model, torch.empty(2, 4)) == ax.capture(Blocks(lambda _: None), torch.empty(2, 4), name="Blocks")


@pytest.mark.parametrize("verb", ["plan", "auto", "baseline"])
def test_the_event_of_a_plan_ends_its_capture(verb):
    model, cancel, seen = stopping_at(3)
    batches = ax.capture_batches(model, torch.empty(2, 4))
    ask = {
        "plan": partial(ax.plan, num_microbatches=2, cache=False, scheduler="serial"),
        "auto": partial(ax.plan, num_microbatches="auto", global_batch=4, cache=False, scheduler="serial"),
        "baseline": partial(ax.baseline, kind="data-parallel", num_microbatches=2),
    }[verb]
    with pytest.raises(CancelledError, match="being traced"):
        ask(batches, "1x2:v100", cancel=cancel)
    assert seen == [1, 2, 3]


def test_a_cancel_applies_to_its_thread_and_block_only():
    model, cancel, seen = stopping_at(3)
    cancel.set()
    with cancelled_by(cancel), cancelled_by(None):
        ax.capture(model, torch.empty(2, 4))
    with cancelled_by(cancel):
        other = threading.Thread(target=ax.capture, args=(model, torch.empty(2, 4)))
        other.start()
        other.join()
    assert seen.count(BLOCKS) >= 2
