"""Attached hosts as a file: a cluster file, which `--cluster FILE` reads, whose section `measured` holds the hosts."""

import json
import os
from dataclasses import asdict, replace
from functools import cache
from typing import Any

import fastjsonschema

from alpa_explore.attached.attach import Attached
from alpa_explore.attached.hosts import Gpu, Host, MeasuredLink, Versions
from alpa_explore.cluster.files import MOST_BYTES
from alpa_explore.errors import ClusterError
from alpa_explore.store.read import read_json
from alpa_explore.store.write import write_text

FORMAT, VERSION = "alpa_explore.attached", 1

_TEXT = {"type": "string", "maxLength": 1000}
_COUNT = {"type": "integer", "minimum": 0}
_SECONDS = {"type": "number", "minimum": 0}


def _record(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


def _list(items: Any) -> dict[str, Any]:
    return {"type": "array", "items": items, "maxItems": 100_000}


_VERSIONS = _record(python=_TEXT, torch=_TEXT, alpa_explore=_TEXT)
SCHEMA = _record(
    format={"const": FORMAT},
    version={"const": VERSION},
    scheduler=_TEXT,
    measured_at=_TEXT,
    here=_VERSIONS,
    hosts=_list(
        _record(
            name=_TEXT,
            address=_TEXT,
            workers=_list(_TEXT),
            versions=_VERSIONS,
            cpu=_TEXT,
            cores=_COUNT,
            memory_bytes=_COUNT,
            free_bytes=_COUNT,
            gpus=_list(_record(name=_TEXT, uuid=_TEXT, memory_bytes=_COUNT, free_bytes=_COUNT)),
            machine=_TEXT,
            namespace=_TEXT,
            rdma=_list(_TEXT),
            problem=_TEXT,
        )
    ),
    links=_list(
        _record(
            source=_TEXT,
            target=_TEXT,
            latency_seconds=_SECONDS,
            points=_list({"type": "array", "items": [_COUNT, _SECONDS], "minItems": 2, "maxItems": 2}),
            fault=_TEXT,
        )
    ),
)
"""Of the section `measured`."""


def attached_document(attached: Attached) -> dict[str, Any]:
    """Hosts and links as JSON can hold them."""
    return {"format": FORMAT, "version": VERSION, **json.loads(json.dumps(asdict(attached)))}


def save_attached(attached: Attached, path: str | os.PathLike[str], *, devices_per_node: int | None = None) -> None:
    """Write the cluster file. ClusterError where the hosts make no cluster, PlanFileError where writing fails."""
    cluster = attached.cluster(devices_per_node)
    device = asdict(replace(cluster.device, measured=None))
    name, source = device.pop("name"), device.pop("source")
    body = {
        "name": name,
        "source": source,
        "nodes": cluster.nodes,
        "devices_per_node": cluster.devices_per_node,
        "device": {key: value for key, value in device.items() if value is not None},
        "inside_node": asdict(cluster.inside_node),
        "between_nodes": asdict(cluster.between_nodes),
        "measured": attached_document(attached),
    }
    write_text(path, json.dumps(body, indent=1, ensure_ascii=False) + "\n", "The cluster file")


def load_attached(path: str | os.PathLike[str]) -> Attached:
    """The hosts and links in a cluster file that `save_attached` wrote. ClusterError for any other file."""
    try:
        body = read_json(path, MOST_BYTES)
        measured: Any = body.get("measured") if isinstance(body, dict) else None
        _validate()(measured)
    except OSError as error:
        raise _unreadable(path, error.strerror or str(error)) from error
    except ValueError as error:  # not UTF-8, not JSON, not of this schema
        raise _unreadable(path, str(error)) from error
    return Attached(
        scheduler=measured["scheduler"],
        measured_at=measured["measured_at"],
        here=Versions(**measured["here"]),
        hosts=tuple(_host(host) for host in measured["hosts"]),
        links=tuple(
            MeasuredLink(**link | {"points": tuple((size, seconds) for size, seconds in link["points"])})
            for link in measured["links"]
        ),
    )


def _host(given: dict[str, Any]) -> Host:
    tuples = {
        "workers": tuple(given["workers"]),
        "rdma": tuple(given["rdma"]),
        "gpus": tuple(Gpu(**gpu) for gpu in given["gpus"]),
        "versions": Versions(**given["versions"]),
    }
    return Host(**given | tuples)


@cache  # Memo of a pure function.
def _validate() -> Any:
    return fastjsonschema.compile(SCHEMA)


def _unreadable(path: object, found: str) -> ClusterError:
    return ClusterError(
        f"{path} holds no attached hosts", found=found[:300], remedy="Give a file that `alpa-explore nodes -o` wrote."
    )
