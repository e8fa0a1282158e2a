"""What the attached device and its software call themselves."""

from __future__ import annotations

import platform
import subprocess

import torch

from alpa_explore.errors import OptionError


def attached_kind(asked_for: str | None) -> str:
    """'cpu' or 'cuda': the kind of device that is asked for, by default CUDA if available. OptionError for one that is
    not attached."""
    kind = ("cuda" if torch.cuda.is_available() else "cpu") if asked_for is None else asked_for
    if not isinstance(kind, str) or kind not in ("cpu", "cuda"):
        raise OptionError("Unknown kind of device", found=repr(kind)[:80], remedy="Use 'cpu' or 'cuda'.")
    if kind == "cuda" and not torch.cuda.is_available():
        raise OptionError("No CUDA device is attached", found="torch.cuda.is_available() is False", remedy="Use 'cpu'.")
    return kind


def device_name(kind: str) -> str:
    """What the device calls itself."""
    return torch.cuda.get_device_name(0) if kind == "cuda" else f"{platform.processor() or platform.machine()} CPU"


def software_versions(kind: str) -> str:
    """Versions of what runs."""
    text = f"torch {torch.__version__}, {platform.system()} {platform.machine()}"
    return f"{text}, CUDA {torch.version.cuda}" if kind == "cuda" else text


def driver_version(kind: str) -> str:
    """Of a GPU; '' for a CPU, and where the driver does not say."""
    return asked("driver_version") if kind == "cuda" else ""


def asked(query: str) -> str:
    """The answer of the driver of the first GPU to a query of nvidia-smi; '' where there is none to ask."""
    command = ["nvidia-smi", f"--query-gpu={query}", "--format=csv,noheader", "--id=0"]
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=20, check=True).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return ""
