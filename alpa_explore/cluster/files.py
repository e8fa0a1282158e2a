"""Clusters and devices from a user's file, JSON or TOML.

A cluster file:                                   A device file is what a preset is; `calibrate` writes one:

    nodes = 2                                         name = "my-gpu"
    devices_per_node = 4                              [device]
    device = "v100"          # a preset, or:          memory_bytes = 17179869184
    [device]                                          …
    like = "v100"            # all other fields       [inside_node]
    name = "my-gpu"                                   bandwidth = 1.3e11
    memory_bytes = 34359738368                        latency_seconds = 5e-6
    [inside_node]            # left out: the          [between_nodes]
    bandwidth = 1.3e11       # links of the preset    bandwidth = 3.1e9
    latency_seconds = 5e-6                            latency_seconds = 2e-5
    [between_nodes]
    …

A cluster of more levels gives them in place of nodes and devices_per_node, from the device outwards (see `levels`):

    device = "h100"
    [[levels]]
    name = "node"
    of = 8                   # devices
    [[levels]]
    name = "pod"
    of = 16                  # nodes, on the network of the preset or of [between_nodes]
    [[levels]]
    name = "spine"
    of = 4                   # pods
    oversubscription = 4     # and bandwidth, latency_seconds of a pod: left out, those of its nodes together

A level that the link inside the node joins too has `inside = true`: the trays of a rack.

A `[between_nodes]` that a file gives is the network of a node of its own, however many devices that has.

All values are in SI units: bytes, seconds, FLOP/s, bytes per second. Every ClusterError names the file and the key.
"""

import math
import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from alpa_explore.cluster.device import Device, Link
from alpa_explore.cluster.kernel_figures import KernelFigures
from alpa_explore.cluster.levels import Level
from alpa_explore.cluster.presets import load_preset, preset_names
from alpa_explore.cluster.software import Software
from alpa_explore.cluster.software_profiles import load_software, software_names
from alpa_explore.errors import ClusterError, nearest_names
from alpa_explore.store.read import parse_json, read_bytes

SUFFIXES = (".json", ".toml")
MOST_BYTES = 2**20
_KEYS = tuple(
    """
    nodes devices_per_node device inside_node between_nodes name aliases source measured software kernels levels rack
    network_devices megatron
    """.split()
)
"""'rack' and 'network_devices' belong to presets, and are ignored in a user's file; 'megatron', which held figures of
an earlier model of iterations, is accepted in old files and ignored."""
_NAME = re.compile(r"[\w.-]{1,60}")
_RETIRED = ("sync_each_tensor", "fuses_sinks")
"""Figures of software in files of earlier versions, which are not read."""
_OVERLAPS = ("collective_overlap", "gradient_overlap")
_SHARES = ("matmul_efficiency", "memory_efficiency", *_OVERLAPS)
_MAY_BE_ZERO = (
    "half_efficiency_flops",
    "launch_seconds",
    "latency_seconds",
    "reduction_bandwidth",
    "expert_capacity",
    *_OVERLAPS,
)
_MOST = 1e24
_RANGES: Mapping[str, tuple[float, float, str]] = {
    "peak_flops": (1e6, 1e18, "FLOP/s: 125 TFLOP/s is 1.25e14"),
    "memory_bytes": (2**20, 2**50, "bytes: 16 GiB is 17179869184"),
    "memory_bandwidth": (1e6, 1e16, "bytes per second: 900 GB/s is 9e11"),
    "bandwidth": (1e6, 1e15, "bytes per second: 130 GB/s is 1.3e11"),
    "latency_seconds": (0, 1, "seconds: 5 µs is 5e-6"),
    "launch_seconds": (0, 1, "seconds: 5 µs is 5e-6"),
}
"""Field -> (least, most, unit with an example); a value outside was probably meant in another unit."""

_Read = Callable[[Any, str, str], Any]
"""(value, key, path of the file) -> the value of a field."""
Parts = tuple[Device, Link, Link]
"""Device, link inside a node, link between nodes."""
_LEVEL_KEYS = ("name", "of", "inside", "oversubscription", "bandwidth", "latency_seconds", "source")


class ClusterParts(NamedTuple):
    """All fields of a cluster."""

    nodes: int
    devices_per_node: int
    device: Device
    inside_node: Link
    between_nodes: Link
    levels: tuple[Level, ...]


def is_file_name(text: str) -> bool:
    """Whether `text` is a file name, by its ending."""
    return text.strip().lower().endswith(SUFFIXES)


def read_device(path: str, per_node: int) -> Parts:
    """A device and its links in nodes of `per_node` devices. Nodes that the file gives are not those of the cluster;
    levels, which are its network, cannot be left out without a word."""
    body = _body(path)
    if "levels" in body:
        sizes = " × ".join(str(level.of) for level in _levels(body["levels"], path)[0])
        raise _fault(
            path,
            "levels",
            f"levels of {sizes} devices, and another size or file asks for its device only",
            f"Name {path} alone, or remove levels to use its device and links.",
        )
    return _parts(body, path, per_node, may_be_file=False)


def read_cluster(path: str) -> ClusterParts:
    """The parts of a cluster, which may give its levels in place of nodes and devices per node, or beside them."""
    body = _body(path)
    levels, inside = _levels(body["levels"], path) if "levels" in body else ((), 0)
    if levels and "nodes" not in body and "devices_per_node" not in body:
        per_node = math.prod(level.of for level in levels[:inside])
        nodes = math.prod(level.of for level in levels[inside:])
        return ClusterParts(nodes, per_node, *_parts(body, path, per_node, may_be_file=True), levels)
    if "nodes" not in body and "devices_per_node" not in body:
        raise ClusterError(
            "A cluster file must give the number of nodes",
            found=f"{path} describes a device only",
            remedy=f"Write it as NODESxDEVICES:{path}, or add nodes and devices_per_node.",
        )
    nodes, per_node = _count(body, "nodes", path), _count(body, "devices_per_node", path)
    return ClusterParts(nodes, per_node, *_parts(body, path, per_node, may_be_file=True), levels)


def checked_name(value: Any, what: str) -> str:
    """`value` if it is a valid name of a device; else ClusterError, which begins with `what`."""
    if not (isinstance(value, str) and _NAME.fullmatch(value)):
        raise ClusterError(what, found=repr(value), remedy="Give a short name of letters, digits, '.', '_' and '-'.")
    return value


def _body(path: str) -> Mapping[str, Any]:
    file = Path(path.strip()).expanduser()
    try:
        text = read_bytes(file, MOST_BYTES).decode("utf-8")
        body = tomllib.loads(text) if file.suffix.lower() == ".toml" else parse_json(text)
    except OSError as error:
        raise _fault(path, "the file", error.strerror or str(error), "Give the path of a JSON or TOML file.") from error
    except (ValueError, RecursionError) as error:  # too large, not UTF-8, not JSON, not TOML
        raise _fault(path, "the text", str(error) or "nested too deep", "Correct that place in the file.") from error
    if not isinstance(body, dict):
        raise _fault(path, "the text", type(body).__name__, "Give a JSON object or a TOML file.")
    for key in body:
        if key not in _KEYS:
            raise _fault(path, key, "an unknown key", nearest_names(key, _KEYS))
    return body


def _parts(body: Mapping[str, Any], path: str, per_node: int, *, may_be_file: bool) -> Parts:
    device, *links = _figures(body, path, per_node, may_be_file=may_be_file)
    software = body.get("software")
    if software is None:
        return device, links[0], links[1]
    if not isinstance(software, str):
        raise _fault(path, "software", repr(software)[:80], f"Name one of {', '.join(software_names())}.")
    return replace(device, software=load_software(software)), links[0], links[1]


def _figures(body: Mapping[str, Any], path: str, per_node: int, *, may_be_file: bool) -> Parts:
    device = body.get("device")
    base: Parts | None
    if isinstance(device, str):
        if not is_file_name(device):
            base = load_preset(device, per_node)
        elif may_be_file:
            base = read_device(str(Path(path.strip()).expanduser().parent / device), per_node)
        else:
            raise _fault(
                path,
                "device",
                repr(device),
                "A device file holds the figures, or names a preset; it cannot name another file.",
            )
        return base[0], *_links(body, path, base)
    if not isinstance(device, dict):
        raise _fault(path, "device", repr(device), f"Name a preset ({', '.join(preset_names())}) or give its figures.")
    base_preset = device.get("like")
    if base_preset is not None and not isinstance(base_preset, str):
        raise _fault(path, "device.like", repr(base_preset), "Name a preset.")
    base = load_preset(base_preset, per_node) if base_preset is not None else None
    figures = {key: value for key, value in device.items() if key != "like"}
    figures.setdefault("name", body.get("name", base[0].name if base else Path(path).stem))
    figures.setdefault("source", body.get("source", str(path)))
    if "kernels" in body:  # where a preset has them
        figures.setdefault("kernels", body["kernels"])
    if base is None:
        figures.setdefault("software", "alpa")
    return _device(figures, path, base[0] if base else None), *_links(body, path, base)


def _links(body: Mapping[str, Any], path: str, base: Parts | None) -> tuple[Link, Link]:
    links = []
    for place, key in ((1, "inside_node"), (2, "between_nodes")):
        given = body.get(key)
        if given is None and base is not None:
            link = base[place]
            assert isinstance(link, Link)
            links.append(link)
            continue
        if not isinstance(given, dict):
            raise _fault(path, key, repr(given), "Give its bandwidth and latency_seconds.")
        _check_keys(given, Link, path, key)
        names = ["bandwidth", "latency_seconds", *(["reduction_bandwidth"] if "reduction_bandwidth" in given else [])]
        figures = {name: _number(given.get(name), f"{key}.{name}", path) for name in names}
        links.append(Link(**figures, source=_text(given.get("source", str(path)), f"{key}.source", path)))
    return links[0], links[1]


def _levels(given: Any, path: str) -> tuple[tuple[Level, ...], int]:
    """The levels, and how many of them make up a node: the first, and those behind it that say so."""
    if not isinstance(given, list) or not 1 <= len(given) <= 10 or not all(isinstance(one, dict) for one in given):
        raise _fault(path, "levels", repr(given)[:80], "Give 1 to 10 levels, each with name and of.")
    levels: list[Level] = []
    inside = 1
    for number, one in enumerate(given):
        key = f"levels[{number}]"
        for name in one:
            if name not in _LEVEL_KEYS:
                raise _fault(path, f"{key}.{name}", "an unknown key", nearest_names(name, _LEVEL_KEYS))
        if one.get("inside", False) not in (True, False) or (one.get("inside") and number > inside):
            raise _fault(path, f"{key}.inside", repr(one["inside"]), "Only the first levels can be inside a node.")
        if one.get("inside") and number == inside:
            inside += 1
        levels.append(_level(one, number, key, path, own_link=number > inside))
    return tuple(levels), inside


def _level(one: Mapping[str, Any], number: int, key: str, path: str, *, own_link: bool) -> Level:
    link = None
    if "bandwidth" in one or "latency_seconds" in one:
        if not own_link:
            where = "inside_node" if number == 0 or one.get("inside") else "between_nodes"
            raise _fault(path, f"{key}.bandwidth", repr(one.get("bandwidth")), f"Give this link as [{where}].")
        figures = {name: _number(one.get(name), f"{key}.{name}", path) for name in ("bandwidth", "latency_seconds")}
        link = Link(**figures, source=_text(one.get("source", str(path)), f"{key}.source", path))
    times = _number(one.get("oversubscription", 1.0), f"{key}.oversubscription", path)
    if times < 1 or (times > 1 and (number == 0 or one.get("inside"))):
        raise _fault(path, f"{key}.oversubscription", repr(times), "Give 1 or more, of a level outside the node.")
    name = _text(one.get("name", f"level {number}"), f"{key}.name", path)
    return Level(name=name, of=_count(one, "of", path, key), link=link, oversubscription=times)


def _device(given: Mapping[str, Any], path: str, base: Device | None) -> Device:
    _check_keys(given, Device, path, "device")
    values: dict[str, Any] = {}
    for field in fields(Device):
        name, key = field.name, f"device.{field.name}"
        if name in _FROM_ELSEWHERE:
            if given.get(name) is not None:
                raise _fault(path, key, str(given[name])[:80], _FROM_ELSEWHERE[name])
        elif name in given:
            read: _Read = _READ.get(name, _figure)
            values[name] = read(given[name], key, path)
        elif base is not None:
            values[name] = getattr(base, name)
        elif field.default is MISSING and field.default_factory is MISSING:
            raise _fault(path, key, "nothing", "Give it, or like = a preset from which it is taken.")
    # A measured curve holds only for the figures that it was measured with.
    if base is not None and "matmul_curve" not in given and {"peak_flops", "matmul_efficiency"} & set(given):
        values["matmul_curve"] = ()
    return Device(**values)


def _figure(value: Any, key: str, path: str) -> float:
    number = _number(value, key, path)
    if key.rpartition(".")[2] in _SHARES and number > 1:
        raise _fault(path, key, repr(value), "Give a share of 1 at most.")
    return number


def _names(value: Any, key: str, path: str) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(one, str) for one in value) or len(value) > 10:
        raise _fault(path, key, repr(value)[:80], "Give a list of names, such as mxfp8.")
    return tuple(value)


def _kernels(value: Any, key: str, path: str) -> KernelFigures | None:
    if value is None:
        return None
    if not isinstance(value, dict):
        raise _fault(path, key, repr(value)[:80], "Give the section of a preset that has it: h100.json.")
    _check_keys(value, KernelFigures, path, key)
    missing = [
        f.name for f in fields(KernelFigures) if f.name not in value and f.default is f.default_factory is MISSING
    ]
    if missing:
        raise _fault(path, f"{key}.{missing[0]}", "nothing", "Give it, or leave the section out.")
    return KernelFigures(**value)


def _software(value: Any, key: str, path: str) -> Software:
    if isinstance(value, str):
        return load_software(value)
    if not isinstance(value, dict):
        raise _fault(path, key, repr(value)[:80], f"Name one of {', '.join(software_names())}.")
    value = {name: figure for name, figure in value.items() if name not in _RETIRED}
    _check_keys(value, Software, path, key)
    return Software(**value)


def _peaks(value: Any, key: str, path: str) -> dict[str, float]:
    if not isinstance(value, dict) or "float32" not in value:
        raise _fault(path, key, repr(value), "Give FLOP/s for each dtype, float32 among them.")
    return {str(dtype): _number(rate, f"{key}.{dtype}", path) for dtype, rate in value.items()}


def _curve(value: Any, key: str, path: str) -> tuple[tuple[float, float], ...]:
    remedy = "Give pairs (FLOPs of a product, share of the peak), FLOPs ascending."
    if not isinstance(value, list) or not all(isinstance(p, list) and len(p) == 2 for p in value) or len(value) > 1000:
        raise _fault(path, key, repr(value)[:80], remedy)
    pairs = tuple((_number(x, key, path), _number(y, key, path)) for x, y in value)
    if any(a[0] >= b[0] for a, b in pairwise(pairs)) or any(share > 1 for _, share in pairs):
        raise _fault(path, key, repr(value)[:80], remedy)
    return pairs


_FROM_ELSEWHERE = {
    "mirror": "Leave it out: a schedule with two copies has one.",
    "measured": "Name a file of kernels behind the device: 1x8:h100+FILE.",
}
"""Fields of a device that no file gives -> what to do in place of it."""
_READ: Mapping[str, _Read] = {
    "name": lambda value, key, path: checked_name(value, f"The cluster file {path} cannot be used: {key}"),
    "source": lambda value, key, path: _text(value, key, path),
    "memory_bytes": lambda value, key, path: int(_number(value, key, path)),
    "peak_flops": _peaks,
    "block_formats": _names,
    "matmul_curve": _curve,
    "kernels": _kernels,
    "software": _software,
}
"""Field of a device that is more than a figure -> how it is read."""


def _check_keys(
    given: Mapping[str, Any],
    kind: type[Device] | type[Link] | type[Software] | type[KernelFigures],
    path: str,
    key: str,
) -> None:
    names = [field.name for field in fields(kind)]
    for name in given:
        if name not in names:
            raise _fault(path, f"{key}.{name}", "an unknown key", nearest_names(name, names))


def _count(body: Mapping[str, Any], key: str, path: str, of: str = "") -> int:
    value = body.get(key)
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= 10**6:
        raise _fault(path, f"{of}.{key}" if of else key, repr(value), "Give a whole number of 1 or more.")
    return value


def _number(value: Any, key: str, path: str) -> float:
    zero = key.rpartition(".")[2] in _MAY_BE_ZERO
    if isinstance(value, bool) or not isinstance(value, int | float) or math.isnan(_within(value)):
        raise _fault(path, key, "nothing" if value is None else repr(value), "Give a number (SI units).")
    if not (value > 0 or (zero and value == 0)):
        raise _fault(path, key, repr(value), f"Give a number {'of 0 or more' if zero else 'above 0'} (SI units).")
    least, most, unit = _RANGES.get(key.split(".")[1], (0, _MOST, ""))
    if not least <= value <= most:
        raise _fault(path, key, repr(value), f"Give {unit}; {least:.3g} to {most:.3g} is accepted.")
    return float(value)


def _within(value: float) -> float:
    """`value` as a float; nan when its magnitude exceeds `_MOST`, which also covers ints too large for a float."""
    return float(value) if -_MOST <= value <= _MOST else math.nan


def _text(value: Any, key: str, path: str) -> str:
    if not isinstance(value, str) or len(value) > 2000:
        raise _fault(path, key, repr(value)[:80], "Give a text of 2,000 characters at most.")
    return value


def _fault(path: str, key: str, found: str, remedy: str) -> ClusterError:
    return ClusterError(f"The cluster file {path} cannot be used: {key}", found=found, remedy=remedy)
