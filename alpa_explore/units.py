"""Formatting of SI values for display. Inside the library all values are seconds, bytes, FLOPs and bytes per second."""

from __future__ import annotations

from collections.abc import Sequence

SMALL = 5e-4
"""A difference or a part below this share is shown as none: it would not change a figure of three digits."""


def printable(text: str) -> str:
    """`text` on one line, with characters that a terminal or a browser would act on replaced by '�'."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else "�" for c in text.replace("\n", " ").replace("\t", " "))


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
_NOTHING = 1e-3
"""Of the smallest unit: what is less, such as a rounding error, is written as 0."""
_DECIMAL = (("E", 1e18), ("P", 1e15), ("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3), ("", 1.0))


def number(value: float, digits: int = 3) -> str:
    """`digits` significant digits, but every digit before the point, in groups: 0.1234 -> '0.123', 12858 -> '12,858'.

    Never with an exponent, where `value` is not tiny. `digits` is 3 or more.
    """
    return f"{value:.{digits}g}" if abs(value) < 1000.0 - 500.0 / 10**digits else f"{value:,.0f}"


def shape(sizes: Sequence[int]) -> str:
    """(2, 4) -> '2×4': a submesh, a logical mesh or a tensor; 'scalar' for a tensor without dims."""
    return "×".join(f"{size:,}" for size in sizes) or "scalar"


def seconds(value: float) -> str:
    """1.2e-3 -> '1.2 ms'."""
    return _scaled(value, _SECONDS)


def bytes_(value: float) -> str:
    """2**30 -> '1 GiB' (binary units, as device memory is specified)."""
    return _scaled(value, _BINARY, digits=4)


def _decimal(value: float, unit: str) -> str:
    return _scaled(value, _DECIMAL, unit)


def _scaled(value: float, scales: Sequence[tuple[str, float]], unit: str = "", digits: int = 3) -> str:
    """In the largest unit of which there is one; a value that is rounded up to one counts (999.9 ms is 1 s)."""
    large = abs(value) * (1.0 + 0.5 / 10**digits)
    name, scale = next((s for s in scales if large >= s[1]), scales[-1])
    return f"{number(value / scale, digits) if large >= _NOTHING * scale else 0} {name}{unit}"


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
    """0.304 -> '30.4 %'; a smaller share than 0.005 % is '<0.01 %'."""
    if 0.0 < fraction < 5e-5:
        return "<0.01 %"
    return f"{number(100 * fraction)} %"


def samples(value: int) -> str:
    """1 -> '1 sample', 2048 -> '2,048 samples'."""
    return f"{value:,} sample{'' if value == 1 else 's'}"


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
