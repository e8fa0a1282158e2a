"""From points to kernel figures: a made-up GPU is found again, and the file alone is enough to fit it again."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from alpa_explore.calibration.device_file import device_file
from alpa_explore.calibration.kernel_fit import attention_kernel, fit_kernels, product_kernel
from alpa_explore.calibration.measurements import AttentionTime, GroupTime, Measurements, Point, Product
from alpa_explore.calibration.measuring.kernels import shapes
from alpa_explore.calibration.tuning import ATTENTION_SHAPES
from alpa_explore.cluster import Cluster, Device
from alpa_explore.cluster.kernel_figures import KernelFigures
from alpa_explore.cluster.presets import load_preset
from alpa_explore.cost.kernel_seconds import KernelTable, table_seconds

LIKE = load_preset("h100")
TRUE = replace(
    LIKE[0],
    memory_efficiency=0.88,
    launch_seconds=2.2e-6,
    kernels=KernelFigures(
        processors=132,
        wave_loss=0.7,
        small_tile_exponent=0.3,
        product_depth=150.0,
        unaligned_share=0.4,
        unaligned_batched_share=0.4,
        batched_share=0.6,
        shares={"bfloat16": 0.77, "float8_e4m3fn": 0.66},
        attention_share=0.55,
        attention_backward_share=0.75,
        attention_head_exponent=0.4,
        attention_keys=420.0,
    ),
)


def seconds(kernels, device: Device = TRUE) -> list[float]:
    return table_seconds(device, KernelTable.of(kernels)).tolist()


def measured(noise: float = 0.0) -> Measurements:
    """What calibrate would measure on the made-up GPU."""
    generator = np.random.default_rng(0)

    def seen(value: float) -> float:
        return value * float(np.exp(noise * generator.standard_normal()))

    products = [
        Product(dtype=dtype, m=m, n=n, k=k, count=batched[0] if batched else 1, seconds=1.0)
        for dtype in ("bfloat16", "float8_e4m3fn")
        for m, n, k, *batched in shapes("cuda")
        if dtype == "bfloat16" or not (batched or m % 16 or n % 16 or k % 16)
    ]
    times = [
        AttentionTime(
            dtype="bfloat16",
            batch_heads=heads,
            sequence=sequence,
            head=head,
            causal=causal,
            forward_seconds=1.0,
            backward_seconds=1.0,
        )
        for heads, sequence, head in ATTENTION_SHAPES["cuda"]
        for causal in (True, False)
    ]
    forward, backward = (seconds([attention_kernel(a, backward=b) for a in times]) for b in (False, True))
    squares = [2**i for i in range(5, 14)]
    square = seconds([product_kernel(Product(dtype="bfloat16", m=s, n=s, k=s, seconds=1.0)) for s in squares])
    rate = TRUE.memory_bandwidth * TRUE.memory_efficiency
    return Measurements(
        device="a made-up GPU",
        software="none",
        memory_bytes=TRUE.memory_bytes,
        main_dtype="bfloat16",
        ranks=1,
        processors=132,
        matmul={"bfloat16": tuple(Point(size=2.0 * s**3, seconds=t) for s, t in zip(squares, square, strict=True))},
        memory=tuple(Point(size=512.0 * 4**i, seconds=seen(2.2e-6 + 512.0 * 4**i / rate)) for i in range(11)),
        collectives={},
        products=tuple(
            replace(p, seconds=seen(t))
            for p, t in zip(products, seconds([product_kernel(p) for p in products]), strict=True)
        ),
        attention=tuple(
            replace(a, forward_seconds=seen(f), backward_seconds=seen(b))
            for a, f, b in zip(times, forward, backward, strict=True)
        ),
        host_seconds={"recorded_operator": 5e-6, "module": 9e-6, "backward_operator": 18e-6},
    )


def test_a_made_up_gpu_is_found_again() -> None:
    found, fits = fit_kernels(measured(), LIKE[0])
    assert [fit.kind for fit in fits] == ["memory-bound kernels", "products", "attention"]
    assert all(fit.mean_error < 0.01 for fit in fits)
    assert found.memory_efficiency == pytest.approx(0.88, rel=0.01)
    assert found.launch_seconds == pytest.approx(2.2e-6, rel=0.01)
    true, kernels = TRUE.kernels, found.kernels
    assert kernels.processors == 132
    for name in ("product_depth", "wave_loss", "unaligned_share", "batched_share"):
        assert getattr(kernels, name) == pytest.approx(getattr(true, name), rel=0.1), name
    for name in ("attention_share", "attention_backward_share", "attention_head_exponent", "attention_keys"):
        assert getattr(kernels, name) == pytest.approx(getattr(true, name), rel=0.1), name
    assert kernels.shares == pytest.approx(true.shares, rel=0.02)


def test_noise_of_a_twentieth_leaves_the_shares() -> None:
    found, fits = fit_kernels(measured(noise=0.05), LIKE[0])
    assert all(fit.mean_error < 0.08 for fit in fits)
    assert found.kernels.shares == pytest.approx(TRUE.kernels.shares, rel=0.05)
    assert found.kernels.attention_share == pytest.approx(0.55, rel=0.15)


def measurements_in(body: Mapping[str, Any]) -> Measurements:
    """The measurements in the body of a device file."""
    kept = body["measured"]
    return Measurements(
        device=body["name"],
        software=body["source"],
        memory_bytes=body["device"]["memory_bytes"],
        main_dtype=next(iter(kept["matmul"])),
        ranks=kept["ranks"],
        processors=kept["processors"],
        matmul={dtype: _points(pairs) for dtype, pairs in kept["matmul"].items()},
        memory=_points(kept["memory"]),
        collectives={kind: _points(pairs) for kind, pairs in kept["collectives"].items()},
        products=tuple(Product(dtype=d, count=c, m=m, n=n, k=k, seconds=s) for d, c, m, n, k, s in kept["products"]),
        attention=tuple(
            AttentionTime(**dict(zip(AttentionTime.__dataclass_fields__, row, strict=True)))
            for row in kept["attention"]
        ),
        host_seconds=kept["host_seconds"],
        groups=tuple(GroupTime(kind=k, ranks=r, bytes=b, seconds=s) for k, r, b, s in kept["groups"]),
        clocks=kept["clocks"],
    )


def _points(pairs: Sequence[Sequence[float]]) -> tuple[Point, ...]:
    return tuple(Point(size=size, seconds=seconds) for size, seconds in pairs)


@pytest.mark.slow
def test_the_file_of_a_gpu_has_its_figures_and_can_be_fitted_again(tmp_path: Path) -> None:
    body = device_file(measured(), name="mine", like=LIKE)
    path = tmp_path / "mine.json"
    path.write_text(json.dumps(body))
    device = Cluster.parse(f"1x1:{path}").device
    assert device.kernels.shares["bfloat16"] == pytest.approx(0.77, rel=0.02)
    assert device.software.name == "eager"
    assert device.software.forward_launch_seconds == pytest.approx(7e-6)
    assert device.software.backward_launch_seconds == pytest.approx(6e-6)
    kernels = [product_kernel(p) for p in measured().products]
    # Of plain PyTorch, operators say themselves what odd sizes cost (cost.plain_kernels).
    device = replace(device, software=replace(device.software, plain_loop=False))
    assert seconds(kernels, device) == pytest.approx(seconds(kernels), rel=0.05)

    kept = json.loads(path.read_text())
    _, fits = fit_kernels(measurements_in(kept), device)
    again = json.loads(json.dumps([asdict(fit) for fit in fits]))
    for fit, before in zip(again, kept["measured"]["fitted"], strict=True):
        assert fit["figures"] == pytest.approx(before["figures"], rel=0.02)


def test_another_software_can_run_on_it(tmp_path: Path) -> None:
    path = tmp_path / "mine.json"
    path.write_text(json.dumps(device_file(measured(), name="mine", like=LIKE)))
    assert Cluster.parse(f"1x1:{path}", software="compiled").software.name == "compiled"


def test_where_only_squares_were_measured_the_file_is_as_before(tmp_path: Path) -> None:
    quick = replace(measured(), products=(), attention=(), host_seconds={})
    body = device_file(quick, name="mine", like=LIKE)
    assert "kernels" not in body["device"]
    assert body["device"]["matmul_curve"]
    path = tmp_path / "mine.json"
    path.write_text(json.dumps(body))
    assert Cluster.parse(f"1x1:{path}").device.kernels is None


def test_a_batch_of_products_does_the_work_of_each() -> None:
    one = product_kernel(Product(dtype="bfloat16", count=1, m=64, n=32, k=16, seconds=1e-6))
    many = product_kernel(Product(dtype="bfloat16", count=5, m=64, n=32, k=16, seconds=1e-6))
    assert (many.flops, many.bytes_accessed) == (5 * one.flops, 5 * one.bytes_accessed)
    assert one.bytes_accessed == 2 * (64 * 16 + 32 * 16 + 64 * 32)
