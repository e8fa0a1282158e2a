"""Attached hosts as a file: a cluster file, which `--cluster FILE` reads, whose section `measured` holds the hosts."""

import json
import os
from dataclasses import replace
from typing import Any

from alpa_explore.attached.attach import Attached
from alpa_explore.cluster.files import MOST_BYTES
from alpa_explore.errors import ClusterError
from alpa_explore.store.forms import conform
from alpa_explore.store.read import read_json
from alpa_explore.store.records import plain, record
from alpa_explore.store.write import write_text

FORMAT, VERSION = "alpa_explore.attached", 1


def attached_document(attached: Attached) -> dict[str, Any]:
    """Hosts and links as JSON can hold them: the section `measured`."""
    return {"format": FORMAT, "version": VERSION, **plain(attached)}


def save_attached(attached: Attached, path: str | os.PathLike[str], *, devices_per_node: int | None = None) -> None:
    """Write the cluster file. ClusterError where the hosts make no cluster, PlanFileError where writing fails."""
    cluster = attached.cluster(devices_per_node)
    device = plain(replace(cluster.device, measured=None))
    body = {
        "name": device.pop("name"),
        "source": device.pop("source"),
        "nodes": cluster.nodes,
        "devices_per_node": cluster.devices_per_node,
        "device": {key: value for key, value in device.items() if value is not None},
        "inside_node": plain(cluster.inside_node),
        "between_nodes": plain(cluster.between_nodes),
        "measured": attached_document(attached),
    }
    write_text(path, json.dumps(body, indent=1, ensure_ascii=False) + "\n", "The cluster file")


def load_attached(path: str | os.PathLike[str]) -> Attached:
    """The hosts and links in a cluster file that `save_attached` wrote. ClusterError for any other file."""
    try:
        measured = conform(read_json(path, MOST_BYTES), {"measured": {"format": str, "version": int}})["measured"]
        if (measured["format"], measured["version"]) != (FORMAT, VERSION):
            raise ValueError(f"its hosts have the format {measured['format'][:50]} {measured['version']}")
        return record(Attached, measured, "measured")
    except (OSError, ValueError) as error:  # not UTF-8, not JSON, not of this form
        found = getattr(error, "strerror", None) or str(error)
        raise ClusterError(
            f"{path} holds no attached hosts",
            found=found[:300],
            remedy="Give a file that `alpa-explore nodes -o` wrote.",
        ) from error
