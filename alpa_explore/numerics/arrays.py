"""Type aliases of numpy arrays of any shape, for annotations (docstrings give the shapes); runs of entries."""

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Floats: TypeAlias = NDArray[np.float64]
Ints: TypeAlias = NDArray[np.int64]
Flags: TypeAlias = NDArray[np.bool_]


def starts(lengths: Sequence[int] | Ints) -> Ints:
    """Where each of some runs begins that lie one after the other."""
    lengths = np.asarray(lengths, dtype=np.int64)
    return np.cumsum(lengths) - lengths


def entries_of_runs(begins: Ints, lengths: Ints) -> Ints:
    """The numbers of all entries of the runs that begin here, run by run."""
    return np.repeat(begins - starts(lengths), lengths) + np.arange(lengths.sum())
