"""Device files kept by machine, so that a machine that was calibrated once is planned for by its own figures.

A file's name is the model of the devices and their number on a host. The folder is that of the user's data, or
$ALPA_EXPLORE_CALIBRATIONS.
"""

import asyncio
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from platformdirs import user_data_path

from alpa_explore.attached import tuning
from alpa_explore.attached.connection import call_one
from alpa_explore.attached.hosts import Host
from alpa_explore.cluster.files import Parts, read_device
from alpa_explore.cluster.presets import load_preset, preset_names
from alpa_explore.errors import ExecutorError
from alpa_explore.store.write import write_text


def calibrations_folder() -> Path:
    """Where the device files are kept."""
    given = os.environ.get("ALPA_EXPLORE_CALIBRATIONS")
    return Path(given) if given else user_data_path("alpa_explore", appauthor=False) / "calibrations"


def machine_key(host: Host, devices: int) -> str:
    """The name of the device file of a host of which so many devices are used: 'nvidia-h100-80gb-hbm3-8'."""
    words = re.sub(r"[^a-z0-9]+", "-", re.sub(r"\((r|tm)\)", "", host.device.lower())).strip("-")
    return f"{words[:50] or host.kind}-{devices}"


def kept_calibration(host: Host, devices: int) -> tuple[Path, Parts] | None:
    """The file of such a machine with what it says; None where it was never calibrated. ClusterError for a file that
    is damaged."""
    path = calibrations_folder() / f"{machine_key(host, devices)}.json"
    return (path, read_device(str(path))) if path.exists() else None


async def calibrate_on(client: Any, host: Host, devices: int, *, shapes: bool) -> Path:
    """Calibrate `devices` devices of a host, on one of its workers, and keep the device file; its path.

    ExecutorError where that fails, with what was printed there.
    """
    key, worker = machine_key(host, devices), host.workers[0]
    like = nearest_preset(host)[0] if host.gpus else None
    ranks = devices if host.gpus else max(devices, 2)  # processes between which a collective can be timed
    arguments = (host.kind, ranks, key, like, shapes)
    found = await call_one(client, worker, calibrated, *arguments, seconds=tuning.CALIBRATE_SECONDS)
    if not isinstance(found, dict):
        raise ExecutorError(
            f"{host.name} could not be calibrated",
            found=str(found)[:500],
            remedy="Run `alpa-explore calibrate` on that host to see more.",
        )
    folder = calibrations_folder()
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{key}.json"
    write_text(path, json.dumps(found, indent=2, ensure_ascii=False) + "\n", "The device file")
    read_device(str(path))
    return path


async def calibrated(kind: str, ranks: int, name: str, like: str | None, shapes: bool) -> dict[str, Any]:
    """On a worker: run `alpa-explore calibrate` in a process of its own; the body of the device file."""
    return await asyncio.to_thread(_calibrate, kind, ranks, name, like, shapes)


def _calibrate(kind: str, ranks: int, name: str, like: str | None, shapes: bool) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "device.json"
        command = [sys.executable, "-P", "-m", "alpa_explore.cli", "calibrate", "-o", str(path), "--name", name]
        command += ["--device", kind, "--ranks", str(ranks), *(["--like", like] if like else [])]
        command += [] if shapes else ["--quick"]
        surroundings = os.environ | {"PYTHONPATH": os.pathsep.join(entry for entry in sys.path if entry)}
        done = subprocess.run(
            command,
            env=surroundings,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=tuning.CALIBRATE_SECONDS,
        )
        if done.returncode:
            raise ExecutorError(
                "alpa-explore calibrate failed",
                found=(done.stderr.strip().splitlines() or ["nothing was printed"])[-1],
                remedy="Run it on that host.",
            )
        body: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return body


def nearest_preset(host: Host) -> tuple[str, bool]:
    """(preset of the host's devices, whether its name says so).

    A GPU whose name holds no preset's name gets the preset with the memory nearest to its own.
    """
    if not host.gpus:
        return "cpu", True
    memory, model = host.gpus[0].memory_bytes, host.gpus[0].name.lower()
    presets = {load_preset(name)[0].name: load_preset(name)[0].memory_bytes for name in preset_names() if name != "cpu"}
    words = set(re.findall(r"[a-z]+\d+", model))
    named = {name for name in presets if name.partition("-")[0] in words}
    nearest = min(sorted(named or presets), key=lambda name: abs(presets[name] - memory))
    return nearest, bool(named)
