"""What runs on a Dask worker: describe its host, listen for a transfer, and transfer.

What takes long is done `on_thread`, so the worker stays alive, and no slot of it is taken. Results are plain values. A
listener takes one connection, which must begin with the secret that the launcher has made for it, and is gone after it.
"""

import hmac
import platform
import socket
import struct
import threading
import time
from pathlib import Path
from statistics import median
from typing import Any

from alpa_explore.attached import tuning
from alpa_explore.execution.available_memory import available_bytes
from alpa_explore.execution.hosts import first_line, machine, network

_SIZE = struct.Struct("!Q")
SECRET_BYTES = 16
_DRIVERS = ("/proc/driver/nvidia", "/dev/nvidiactl", "/dev/kfd", "/dev/dxg")
"""Where a driver of GPUs (NVIDIA's, AMD's, Windows') shows itself; torch is not imported without one."""


def describe() -> dict[str, Any]:
    """The host of this process by the fields of `Host`, as JSON can hold them."""
    import psutil  # distributed depends on it

    memory, left = psutil.virtual_memory(), available_bytes()
    total = min(memory.total, _cgroup_limit() or memory.total)
    return {
        "name": socket.gethostname(),
        "versions": versions(),
        "cpu": _cpu_model(),
        "cores": _cores(),
        "memory_bytes": total,
        "free_bytes": min(total, memory.available if left is None else left),
        "gpus": _gpus() if any(Path(driver).exists() for driver in _DRIVERS) else [],
        "machine": machine(),
        "namespace": network(),
        "rdma": sorted(p.name for p in Path("/sys/class/infiniband").glob("*")),
    }


def versions() -> dict[str, str]:
    """The versions of this process."""
    from alpa_explore.store.code_version import installed_version, source_digest

    return {
        "python": platform.python_version(),
        "torch": installed_version("torch"),
        "alpa_explore": f"{installed_version('alpa-explore')} {source_digest()}",
    }


async def listen(address: str, secret: bytes) -> int:
    """Listen for one transfer at this address of the host, for `tuning.LISTEN_SECONDS`; the port."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    server = socket.create_server((address, 0), family=family)
    threading.Thread(target=_serve, args=(server, secret), name="alpa-explore link", daemon=True).start()
    return int(server.getsockname()[1])


def transfer(address: str, port: int, secret: bytes) -> dict[str, Any]:
    """Send messages of growing size to a listener.

    {"latency_seconds", "points": [[bytes, seconds], …]}, or {"fault": why the listener was not reached}.
    """
    limit = tuning.LINK_SECONDS
    try:
        with socket.create_connection((address, port), timeout=limit) as line:
            limit = tuning.STALL_SECONDS
            line.settimeout(limit)
            line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            line.sendall(secret)
            payload = memoryview(bytes(tuning.SIZES[-1]))
            latency = median(_sent(line, payload[:1]) for _ in range(tuning.ROUND_TRIPS)) / 2
            _sent(line, payload[: 2**16])  # opens TCP's congestion window
            points: list[list[float]] = []
            for size in tuning.SIZES:
                times = [_sent(line, payload[:size])]
                while len(times) < tuning.REPEATS and sum(times) < tuning.LONGEST_SECONDS:
                    times.append(_sent(line, payload[:size]))
                points.append([size, max(median(times) - latency, 0.5 * median(times))])  # less the acknowledgement
                if points[-1][1] > tuning.LONGEST_SECONDS:
                    break
            line.sendall(_SIZE.pack(0))
            return {"latency_seconds": latency, "points": points}
    except TimeoutError:
        return {"fault": f"no answer within {limit:.0f} s (a firewall that drops packets?)"}
    except OSError as error:
        return {"fault": (error.strerror or str(error)).lower()}


def _sent(line: socket.socket, message: memoryview) -> float:
    """Seconds until the receiver has acknowledged the whole message."""
    start = time.perf_counter()
    line.sendall(_SIZE.pack(len(message)))
    line.sendall(message)
    if not line.recv(1):
        raise ConnectionResetError("closed by the other host")
    return time.perf_counter() - start


def _serve(server: socket.socket, secret: bytes) -> None:
    """Take connections until one knows the secret; acknowledge its messages until it sends an empty one."""
    deadline = time.monotonic() + tuning.LISTEN_SECONDS
    with server:
        while (left := deadline - time.monotonic()) > 0:
            server.settimeout(left)
            try:
                line, _ = server.accept()
                with line:
                    line.settimeout(tuning.STALL_SECONDS)
                    if hmac.compare_digest(_exactly(line, SECRET_BYTES), secret):
                        _acknowledge(line)
                        return
            except OSError:  # the sender reports what is wrong; another one may still come
                continue


def _acknowledge(line: socket.socket) -> None:
    line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    buffer = memoryview(bytearray(tuning.CHUNK_BYTES))
    while left := _SIZE.unpack(_exactly(line, _SIZE.size))[0]:
        while left:
            count = line.recv_into(buffer, min(left, len(buffer)))
            if not count:
                return
            left -= count
        line.sendall(b"\0")


def _exactly(line: socket.socket, count: int) -> bytes:
    found = b""
    while len(found) < count:
        part = line.recv(count - len(found))
        if not part:
            raise ConnectionResetError("closed by the other host")
        found += part
    return found


def _gpus() -> list[dict[str, Any]]:
    import torch  # seconds, which a worker without GPUs has no need of

    found = []
    for number in range(torch.cuda.device_count()):
        properties = torch.cuda.get_device_properties(number)
        free, total = torch.cuda.mem_get_info(number)
        uuid = str(getattr(properties, "uuid", "")) or f"{number}"
        found.append({"name": properties.name, "uuid": uuid, "memory_bytes": total, "free_bytes": free})
    return found


def _cores() -> int:
    from dask.system import cpu_count  # knows affinity and cgroups

    return int(cpu_count())


def _cgroup_limit() -> int | None:
    """The memory limit of the container; None where there is none."""
    text = first_line("/sys/fs/cgroup/memory.max") or first_line("/sys/fs/cgroup/memory/memory.limit_in_bytes")
    return int(text) if text.isdigit() else None


def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else f"{platform.processor() or platform.machine()} CPU"
