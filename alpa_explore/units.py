"""Formatting of SI values for display. Inside the library all values are seconds, bytes, FLOPs and bytes per second."""

from __future__ import annotations

DTYPE_BYTES: dict[str, int] = {
    "float64": 8,
    "float32": 4,
    "float16": 2,
    "bfloat16": 2,
    "float8_e4m3fn": 1,
    "float8_e5m2": 1,
    "int64": 8,
    "int32": 4,
    "int16": 2,
    "int8": 1,
    "uint8": 1,
    "bool": 1,
    "complex64": 8,
    "complex128": 16,
}
"""torch's name of a dtype -> bytes of one element."""


_SECONDS = (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6))
_BINARY = (("TiB", 2**40), ("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10), ("B", 1))
_DECIMAL = (("E", 1e18), ("P", 1e15), ("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3), ("", 1.0))


def seconds(value: float) -> str:
    """1.2e-3 -> '1.2 ms'."""
    for unit, scale in _SECONDS:
        if abs(value) >= scale or unit == "µs":
            return f"{value / scale:.3g} {unit}"
    raise AssertionError("unreachable")


def bytes_(value: float) -> str:
    """2**30 -> '1 GiB' (binary units, as device memory is specified)."""
    for unit, scale in _BINARY:
        if abs(value) >= scale or unit == "B":
            return f"{value / scale:.4g} {unit}"
    raise AssertionError("unreachable")


def _decimal(value: float, unit: str) -> str:
    for prefix, scale in _DECIMAL:
        if abs(value) >= scale or not prefix:
            return f"{value / scale:.3g} {prefix}{unit}"
    raise AssertionError("unreachable")


def flops(value: float) -> str:
    """1.2e12 -> '1.2 TFLOP'."""
    return _decimal(value, "FLOP")


def flops_per_second(value: float) -> str:
    """1.2e14 -> '120 TFLOP/s'."""
    return _decimal(value, "FLOP/s")


def bytes_per_second(value: float) -> str:
    """3e9 -> '3 GB/s' (decimal units, as links are specified)."""
    return _decimal(value, "B/s")


def count(value: float) -> str:
    """1.3e9 -> '1.3 G' (parameters, operators)."""
    return _decimal(value, "").strip()


def percent(fraction: float) -> str:
    """0.304 -> '30.4 %'."""
    return f"{100 * fraction:.3g} %"


def seconds_axis(largest: float) -> tuple[float, str]:
    """(divisor, unit) for an axis of seconds that goes up to `largest`: 0.02 -> (1e-3, 'ms')."""
    unit, scale = next((s for s in _SECONDS if largest >= s[1]), _SECONDS[-1])
    return scale, unit


def bytes_axis(largest: float) -> tuple[float, str]:
    """(divisor, unit) for an axis of bytes: 3e9 -> (2**30, 'GiB')."""
    unit, scale = next((s for s in _BINARY if largest >= s[1]), _BINARY[-1])
    return float(scale), unit


def flops_axis(largest: float) -> tuple[float, str]:
    """(divisor, unit) for an axis of FLOPs: 3e12 -> (1e12, 'TFLOP')."""
    prefix, scale = next((s for s in _DECIMAL if largest >= s[1]), _DECIMAL[-1])
    return scale, f"{prefix}FLOP"
