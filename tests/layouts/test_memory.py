"""Bytes of a device of a layout: what ran does fit, and what is divided further needs less."""

import pytest

from alpa_explore.layouts.machine import machine
from alpa_explore.layouts.memory import BYTES_A_PARAMETER, device_bytes
from tests.layouts.measured import small, tables


def test_every_layout_that_was_run_fits_in_its_device() -> None:
    room = machine("a100-80gb").device.memory_bytes
    needed = [device_bytes(row.layout) for table in tables() for row in table]
    assert len(needed) == 388
    assert max(needed) < room
    assert max(needed) > 0.75 * room, "the largest runs were chosen to fill it"


def test_one_device_holds_all_parameters_and_what_one_layer_needs() -> None:
    alone = small(devices=1, tensor=1, data=1, pipeline=1, micro_batch=1)
    parameters = 12 * 1024**2 * 8 + 50257 * 1024
    layer = 1024 * 1024 * (34 + 5 * 16 * 1024 / 1024)
    logits = 1024 * 50257 * 10
    assert device_bytes(alone) == BYTES_A_PARAMETER * parameters + 8 * 2 * 1024 * 1024 + layer + logits


@pytest.mark.parametrize(
    ("less", "more"),
    [
        ({"tensor": 4, "devices": 16}, {}),
        ({"pipeline": 4, "devices": 16}, {}),
        ({}, {"micro_batch": 4}),
        ({}, {"layers": 16}),
        ({}, {"hidden": 2048}),
        ({"recompute": True}, {"recompute": False}),
        ({"global_batch": 4, "vocabulary": 64}, {"vocabulary": 64}),
    ],
)
def test_dividing_needs_less_and_a_larger_model_or_microbatch_more(less: dict[str, int], more: dict[str, int]) -> None:
    assert device_bytes(small(**less)) < device_bytes(small(**more))


def test_data_parallelism_alone_needs_the_same_memory_on_every_device() -> None:
    assert device_bytes(small()) == device_bytes(small(data=4, devices=16, global_batch=32))
