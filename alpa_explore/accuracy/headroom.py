"""Whether a prediction that fits in memory is safe to fit: what a device really offers, and the error of the size."""

from alpa_explore.accuracy import tuning
from alpa_explore.accuracy.error_band import Band


def usable_bytes(memory_bytes: float) -> float:
    """What a framework may use of a device with so much memory: without what the driver and the context take."""
    return tuning.USABLE_SHARE * memory_bytes


def is_tight(peak_bytes: float, memory_bytes: float, band: Band | None) -> bool:
    """Whether a peak of so many predicted bytes exceeds what is usable if it is larger by its mean error; of a kind
    that nobody measured, by `tuning.UNKNOWN_ERROR`."""
    error = tuning.UNKNOWN_ERROR if band is None else band.fraction
    return peak_bytes * (1 + error) > usable_bytes(memory_bytes)
