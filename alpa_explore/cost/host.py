"""Host time: the host launches kernels while the device runs them, and the slower of the two sets the pace."""

from __future__ import annotations


def pace(host_seconds: float, device_seconds: float, sharpness: float) -> float:
    """Soft maximum (host^q + device^q)^(1/q): both stall for each other where they take about as long.

    `sharpness` q = 1 is the sum, infinity the maximum.
    """
    high, low = max(host_seconds, device_seconds), min(host_seconds, device_seconds)
    if low <= 0.0:
        return high
    return high * float((1.0 + (low / high) ** sharpness) ** (1.0 / sharpness))
