"""Read sharding problems in the format of the ASPLOS 2025 contest on intra-operator parallelism (IOPDDL).

    {"problem": {"name": …, "nodes": {"costs": [[…], …], …}, "edges": {"nodes": [[a, b], …], "costs": [[…], …]}},
     "optimum": …}

An edge's costs are flat: the cost of (i, j) is at i · K_b + j. A cost of 1e18 or more is forbidden. Files come from
strangers: size and shape are checked, and nothing in them is executed.
"""

from __future__ import annotations

import gzip
import math
import os
import zlib
from typing import Any, NamedTuple, NoReturn

import numpy as np

from alpa_explore import units
from alpa_explore.errors import AlpaExploreError
from alpa_explore.execution.available_memory import available_bytes
from alpa_explore.intra_op.problem.memory_limit import Item, MemoryLimit
from alpa_explore.intra_op.problem.sharding_problem import ShardingProblem
from alpa_explore.iopddl import tuning
from alpa_explore.numerics.arrays import Floats
from alpa_explore.numerics.memory import no_collection
from alpa_explore.store.read import open_regular, parse_json, read_pieces

_Known = dict[tuple[float, ...], Floats]
_NUMBERS = frozenset((int, float))
_LEAST_GZIP_BYTES = 18


def parse_problem(path: str | os.PathLike[str], data: dict[str, Any] | None = None) -> dict[str, Any]:
    """The problem of a file as plain JSON values; `data` is the whole document, where it was already parsed."""
    if data is None:
        data = read_document(path)
    return _object(data.get("problem", data), "problem", path)


class ProblemFile(NamedTuple):
    """The contents of a file."""

    problem: ShardingProblem
    memory: MemoryLimit | None
    """None when the file has no limit."""
    optimum: float | None
    """The proven optimum, where the file has one."""


def read_document(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The whole document in a .json or .json.gz file, as plain JSON values.

    Raises AlpaExploreError when the file is missing, too large or not JSON.
    """
    # Millions of small lists are made, and none is garbage: collecting takes as long as reading.
    with no_collection():
        return _object(_parse(path), "the file", path)


def read_problem(path: str | os.PathLike[str], data: dict[str, Any] | None = None) -> ProblemFile:
    """The problem in a .json or .json.gz file; `data` is the whole document, where it was already read.

    Raises AlpaExploreError when the file is missing, too large or damaged.
    """
    if data is None:
        data = read_document(path)
    problem = parse_problem(path, data)
    nodes = _object(problem.get("nodes"), "nodes", path)
    edges = _object(problem.get("edges", {"nodes": [], "costs": []}), "edges", path)
    # Files repeat few tables many times: equal ones become one array, which later passes recognise.
    known: _Known = {}
    shaped: dict[tuple[int, int, int], Floats] = {}
    node_costs = [
        _costs(vector, "costs of node", v, path, known)
        for v, vector in enumerate(_list(nodes.get("costs"), "node costs", path))
    ]
    pairs = _list(edges.get("nodes"), "edge nodes", path)
    matrices = _list(edges.get("costs"), "edge costs", path)
    if len(pairs) != len(matrices):
        _damaged(path, f"{len(pairs)} edges but {len(matrices)} edge cost tables")
    ends: list[tuple[int, int]] = []
    edge_costs: list[Floats] = []
    for e, (pair, flat) in enumerate(zip(pairs, matrices, strict=True)):
        a, b = _end_nodes(pair, e, len(node_costs), path)
        costs = _costs(flat, "costs of edge", e, path, known)
        rows, columns = len(node_costs[a]), len(node_costs[b])
        if costs.size != rows * columns:
            _damaged(path, f"edge {e} has {costs.size} costs where {rows} × {columns} are needed")
        matrix = shaped.setdefault((id(costs), rows, columns), costs.reshape(rows, columns))
        if a == b:
            # Both ends have the same strategy: only the diagonal can be chosen.
            node_costs[a] = node_costs[a] + matrix.diagonal()
            continue
        ends.append((a, b))
        edge_costs.append(matrix)
    name = problem.get("name")
    return ProblemFile(
        ShardingProblem(
            name=name if isinstance(name, str) else os.path.basename(os.fspath(path)).split(".")[0],
            node_costs=tuple(node_costs),
            edges=tuple(ends),
            edge_costs=tuple(edge_costs),
        ),
        _memory(problem.get("usage_limit"), nodes, [len(c) for c in node_costs], path, known),
        _optimum(data.get("optimum"), path),
    )


def _memory(
    limit: object, nodes: dict[str, Any], sizes: list[int], path: str | os.PathLike[str], known: _Known
) -> MemoryLimit | None:
    if limit is None:
        return None
    limit_bytes = _number(limit)
    if limit_bytes is None or not 0 <= limit_bytes < math.inf:
        _damaged(path, f"usage_limit {limit!r:.40} is not a number of bytes")
    intervals = _list(nodes.get("intervals"), "intervals", path)
    usages = _list(nodes.get("usages"), "usages", path)
    if not len(intervals) == len(usages) == len(sizes):
        _damaged(path, f"{len(sizes)} nodes, {len(intervals)} intervals and {len(usages)} usages")
    items = []
    for v, (interval, usage, size) in enumerate(zip(intervals, usages, sizes, strict=True)):
        times = interval if isinstance(interval, list) else []
        if (
            len(times) != 2
            or type(times[0]) is not int
            or type(times[1]) is not int
            or not 0 <= times[0] <= times[1] <= tuning.MAX_TIME
        ):
            _damaged(path, f"the interval of node {v} is {interval!r:.40}, not [start, end]")
        amounts = _costs(usage, "usages of node", v, path, known)
        if len(amounts) != size:
            _damaged(path, f"node {v} has {len(amounts)} usages for {size} strategies")
        items.append(Item(node=v, start=times[0], end=times[1], usage=amounts))
    return MemoryLimit.of(items, limit_bytes)


def reading_seconds(path: str | os.PathLike[str]) -> float:
    """About how long it takes to read the file, from its length alone; 0 where it cannot be opened."""
    try:
        with open_regular(path) as file:
            packed = file.read(2) == b"\x1f\x8b"
            end = file.seek(0, os.SEEK_END)
            if packed and end >= _LEAST_GZIP_BYTES:
                # The last four bytes are the length of the text, modulo 2³².
                file.seek(end - 4)
                end = int.from_bytes(file.read(4), "little")
    except OSError:
        return 0.0
    return end / tuning.READ_BYTES_A_SECOND


def _check_memory(path: str | os.PathLike[str], text_bytes: int) -> None:
    """Raise AlpaExploreError where the problem would not fit in the memory that is free."""
    needed, free = tuning.MEMORY_FACTOR * text_bytes, available_bytes()
    if free is not None and needed > free:
        raise AlpaExploreError(
            f"{os.fspath(path)} is too large for the memory of this machine",
            found=f"{units.bytes_(text_bytes)} of JSON may need {units.bytes_(needed)}, {units.bytes_(free)} are free",
            remedy="End other programs, or take a machine with more memory or a smaller problem.",
        )


def _parse(path: str | os.PathLike[str]) -> object:
    try:
        with open_regular(path) as file:
            packed = file.read(2) == b"\x1f\x8b"
            file.seek(0)
            text = read_pieces(gzip.GzipFile(fileobj=file) if packed else file, tuning.MAX_JSON_BYTES)
    except (OSError, EOFError, zlib.error, ValueError) as error:
        _damaged(path, f"cannot be read ({error})")
    _check_memory(path, len(text))
    try:
        parsed: object = parse_json(text, most_depth=None)
    except ValueError as error:
        _damaged(path, f"not JSON ({error})")
    return parsed


def _costs(value: object, of: str, number: int, path: str | os.PathLike[str], known: _Known) -> Floats:
    """The list `value` as an array; the same array for an equal list of before."""
    numbers = _list(value, f"{of} {number}", path)
    # To Python a bool is an int, and to numpy a numeric string is a number: neither is a cost.
    if not _NUMBERS.issuperset(map(type, numbers)):
        wrong = next(x for x in numbers if type(x) not in _NUMBERS)
        _damaged(path, f"{of} {number}: {wrong!r:.40} is not a number")
    key = tuple(numbers)
    costs = known.get(key)
    if costs is None:
        try:
            costs = np.array(numbers, dtype=np.float64)
        except OverflowError:
            _damaged(path, f"{of} {number}: a number too large for a float")
        if costs.size and not (costs.min() >= 0.0 and costs.max() < math.inf):
            _damaged(path, f"{of} {number}: {costs[~((costs >= 0) & (costs < math.inf))][0]} is negative or not finite")
        known[key] = costs
    return costs


def _end_nodes(pair: object, e: int, count: int, path: str | os.PathLike[str]) -> tuple[int, int]:
    if isinstance(pair, list) and len(pair) == 2:
        a, b = pair
        if type(a) is int and type(b) is int and 0 <= a < count and 0 <= b < count:
            return a, b
    _damaged(path, f"edge {e} joins {pair!r:.40}, not two of the {count} nodes")


def _optimum(value: object, path: str | os.PathLike[str]) -> float | None:
    if value is None:
        return None
    optimum = _number(value)
    if optimum is None:
        _damaged(path, f"optimum {value!r:.40} is not a number")
    return optimum


def _number(value: object) -> float | None:
    """A JSON number as a float; None for anything else and for integers beyond the range of floats."""
    if isinstance(value, bool) or not isinstance(value, int | float):  # to Python a bool is an int
        return None
    try:
        return float(value)
    except OverflowError:
        return None


def _object(value: object, where: str, path: str | os.PathLike[str]) -> dict[str, Any]:
    if not isinstance(value, dict):
        _damaged(path, f"{where} is missing or not an object")
    return value


def _list(value: object, where: str, path: str | os.PathLike[str]) -> list[Any]:
    if not isinstance(value, list):
        _damaged(path, f"{where}: a list is needed")
    return value


def _damaged(path: str | os.PathLike[str], found: str) -> NoReturn:
    raise AlpaExploreError(
        f"{os.fspath(path)} is not a sharding problem that can be read",
        found=found,
        remedy="The format is that of the ASPLOS 2025 contest (github google/iopddl), as .json or .json.gz.",
    )
