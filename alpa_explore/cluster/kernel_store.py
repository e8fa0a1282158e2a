"""Kernels that were timed on one kind of device, by operator and local shapes: `alpa-explore profile` writes them.

A file of them is named behind a device: `1x8:h100+kernels.json`. It is a JSON object:

    device, driver, software, date       where and when they were timed
    host                                 the machine of the device; absent in older files
    kernels                              a list; each has the fields of `MeasuredKernel`
    failed                               name of a kernel that cannot run there -> why; may be absent

Seconds are those of the device for one call whose inputs are not in its caches.
"""

import platform
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from types import MappingProxyType
from typing import Any

from alpa_explore.errors import ClusterError
from alpa_explore.store.read import conform, parse_json, read_bytes

MOST_BYTES = 2**26
_ADVICE = "Write it anew with `alpa-explore profile`."


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredKernel:
    """One kernel and its time. The fields from `flops` to `steps` are those of `cost.kernels.Kernel`."""

    name: str
    """Of the operator and its local shapes: `cost.measured.kernel_name`."""
    family: str
    """Of all kernels that differ from it in their sizes alone."""
    flops: float
    bytes_accessed: float
    dtype: str
    matrix: bool
    kind: str
    sizes: tuple[float, ...]
    steps: float
    seconds: float
    """Of the device: the median of several runs."""
    host_seconds: float
    """Of the host, to issue it."""
    spread: float
    """(third quartile − first quartile) / median of the runs."""

    @property
    def size(self) -> float:
        """By which kernels of a family are ordered: FLOPs on matrix units, else bytes."""
        return self.flops if self.matrix else self.bytes_accessed


@dataclass(frozen=True, kw_only=True)
class KernelStore:
    """The kernels that were timed on one kind of device. Two with the same `digest` are equal."""

    device: str = field(compare=False)
    """Its own name for itself."""
    driver: str = field(compare=False)
    software: str = field(compare=False)
    """Versions of torch and what it was built with."""
    date: str = field(compare=False)
    kernels: Mapping[str, MeasuredKernel] = field(compare=False, repr=False)
    """By name."""
    failed: Mapping[str, str] = field(default_factory=dict, compare=False, repr=False)
    """Name of a kernel that cannot run there -> why: it has no time, and no price."""
    host: str = field(default="", compare=False)
    """The name in its network of the machine that has the device; '' where it is not known, several with '; '
    between."""
    digest: str = ""
    """Of the names and seconds, and of the names that failed."""

    def __post_init__(self) -> None:
        body = repr([*sorted((name, kernel.seconds) for name, kernel in self.kernels.items()), *sorted(self.failed)])
        object.__setattr__(self, "digest", sha256(body.encode()).hexdigest()[:16])

    def __repr__(self) -> str:
        # The cache keys of prices contain it: what else a store says has no influence on them.
        return f"KernelStore({self.digest})"

    @property
    def of_this_host(self) -> bool:
        """Whether all of it was timed on this machine: on this device, and not only on one of its kind."""
        return self.host == this_host()

    @cached_property
    def families(self) -> Mapping[str, Sequence[MeasuredKernel]]:
        """Family -> its kernels, by size."""
        found: dict[str, list[MeasuredKernel]] = {}
        for kernel in sorted(self.kernels.values(), key=lambda kernel: kernel.size):
            found.setdefault(kernel.family, []).append(kernel)
        return found

    def may_be_of(self, device: str) -> bool:
        """Whether what it was timed on may be a device of a preset's name: 'NVIDIA H100 80GB HBM3' is an h100."""
        parts = device.lower().split("-")
        kind = next((part for part in parts if part == "cpu" or any(map(str.isdigit, part))), device.lower())
        return kind in re.split(r"[^a-z0-9]+", self.device.lower())

    def with_kernels(
        self, kernels: Sequence[MeasuredKernel], failed: Mapping[str, str] = MappingProxyType({})
    ) -> "KernelStore":
        """The store with more kernels, and more that `failed`; of one that it has, what is new."""
        timed = {kernel.name: kernel for kernel in kernels}
        return replace(
            self,
            kernels={name: k for name, k in {**self.kernels, **timed}.items() if name not in failed},
            failed={name: why for name, why in {**self.failed, **failed}.items() if name not in timed},
        )

    def as_json(self) -> dict[str, Any]:
        """The body of its file."""
        return {
            "device": self.device,
            "driver": self.driver,
            "software": self.software,
            "date": self.date,
            "host": self.host,
            "kernels": [asdict(kernel) for kernel in self.kernels.values()],
            **({"failed": dict(self.failed)} if self.failed else {}),
        }


def this_host() -> str:
    """What this machine is called in its network."""
    return platform.node()


def read_kernel_store(path: str) -> KernelStore:
    """The store in a file. ClusterError, with the place, where it is damaged."""
    try:
        body = parse_json(read_bytes(Path(path).expanduser(), MOST_BYTES).decode("utf-8"))
    except OSError as error:
        raise _fault(
            path, error.strerror or str(error), "Give the path of a file of `alpa-explore profile`."
        ) from error
    except (ValueError, RecursionError) as error:
        raise _fault(path, str(error) or "nested too deep", _ADVICE) from error
    if not isinstance(body, dict):
        raise _fault(path, f"{type(body).__name__} and not an object", _ADVICE)
    return kernel_store_of(body, path)


def kernel_store_of(body: Mapping[str, Any], path: str) -> KernelStore:
    """The store of the body of its file; `path` names it in the ClusterError for one that is damaged."""
    if not isinstance(body.get("kernels"), list):
        raise _fault(path, "no list named kernels", _ADVICE)
    texts: dict[str, str] = {}
    for name in ("device", "driver", "software", "date", "host"):
        text = body.get(name, "" if name == "host" else None)
        if not isinstance(text, str):
            raise _fault(path, f"{name} is {text!r}, not a text", _ADVICE)
        texts[name] = text
    kernels = [_kernel(path, place, entry) for place, entry in enumerate(body["kernels"])]
    failed = body.get("failed", {})
    if not (isinstance(failed, dict) and all(isinstance(text, str) for pair in failed.items() for text in pair)):
        raise _fault(path, "failed does not name kernels with a reason each", _ADVICE)
    return KernelStore(**texts, kernels={kernel.name: kernel for kernel in kernels}, failed=failed)


_NUMBERS = dict.fromkeys(("flops", "bytes_accessed", "steps", "seconds", "host_seconds", "spread"), float)
_FORM = {
    **dict.fromkeys(("name", "family", "dtype", "kind"), str),
    **_NUMBERS,
    **{"matrix": bool, "sizes": [float] * 4},
}


def _kernel(path: str, place: int, entry: object) -> MeasuredKernel:
    where = f"kernels[{place}]"
    try:
        body: dict[str, Any] = conform(entry, _FORM, where)
    except ValueError as error:
        raise _fault(path, str(error), _ADVICE) from error
    sizes = tuple(map(float, body["sizes"]))
    if body.keys() != _FORM.keys() or min(*sizes, *(body[name] for name in _NUMBERS)) < 0:
        raise _fault(path, f"{where} is not a kernel: a key that it has not, or a negative number", _ADVICE)
    if not body["seconds"] or not body["steps"]:
        raise _fault(path, f"{where} takes no time", _ADVICE)
    return MeasuredKernel(**{**body, "sizes": sizes})


def _fault(path: str, found: str, remedy: str) -> ClusterError:
    return ClusterError("A file of measured kernels cannot be used", found=f"{path}: {found}", remedy=remedy)
