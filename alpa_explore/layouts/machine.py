"""A machine that trains layouts: a device and its links from a preset, and fitted figures of the software."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields

from alpa_explore.cluster.device import Device, Link
from alpa_explore.cluster.files import is_file_name, read_device
from alpa_explore.cluster.presets import load_preset, load_section
from alpa_explore.errors import ClusterError

SECTION = "megatron"
"""Name of the section of a preset file that holds `Software`."""
_MEASURED_ON = "a100-80gb"


@dataclass(frozen=True, slots=True, kw_only=True)
class Software:
    """The performance figures of Megatron-DeepSpeed on a machine, all fitted to measured iterations."""

    matmul_efficiency: float
    """Share of the peak that a matrix product reaches which is not memory-bound."""
    unaligned_efficiency: float
    """Factor on that share where a side is not a multiple of 8: an unsharded, unpadded vocabulary."""
    attention_traffic: float
    """Bytes moved for attention probabilities, relative to those that the kernels must move."""
    forward_launch_seconds: float
    """Host time of one kernel of a forward pass (Python)."""
    backward_launch_seconds: float
    """Host time of one kernel of a backward pass (autograd, without Python)."""
    collective_launch_seconds: float
    """Host time of one all-reduce of a layer."""
    collective_latency_seconds: float
    """Latency of one all-reduce of a layer per doubling of its ranks: the ranks wait for the last one."""
    collective_bandwidth: float
    """Bytes per second of a ring inside a node."""
    microbatch_seconds: float
    """Overhead of a microbatch besides its layers: data, loss, the schedule."""
    iteration_seconds: float
    """Overhead of an iteration besides its microbatches."""
    shared_node_slowdown: float
    """Relative growth of a stage's time per doubling of its nodes, where a node holds several of its replicas. The runs
    show the effect, not which shared resource (host, network adapters) causes it."""


FITTED = tuple(field.name for field in fields(Software))


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """Nodes of `devices_per_node` devices."""

    device: Device
    inside_node: Link
    between_nodes: Link
    software: Software
    devices_per_node: int = 8
    network_efficiency: float = 0.9
    """Share of the network bandwidth that collectives reach. Not fitted: few measured layouts depend on it."""
    calibrated: bool = True
    """False where the software figures were measured on another device."""

    def __post_init__(self) -> None:
        if self.devices_per_node < 1:
            raise ClusterError(
                "A node needs a device", found=f"{self.devices_per_node} devices per node", remedy="Give 1 or more."
            )

    @property
    def memory_rate(self) -> float:
        """Bytes per second of a memory-bound kernel."""
        return self.device.memory_bandwidth * self.device.memory_efficiency

    @property
    def network_rate(self) -> float:
        """Bytes per second of one node when all its devices send."""
        return self.between_nodes.bandwidth * self.network_efficiency


def machine(name: str, devices_per_node: int = 8) -> Machine:
    """The machine of a device preset, or of a device file such as `alpa-explore calibrate` writes.

    A device without software figures of its own gets the host figures measured on `a100-80gb` with the efficiency and
    link bandwidth of the preset, and `calibrated` is False. UnknownNameError for an unknown device.
    """
    from_file = is_file_name(name)
    device, inside, between = read_device(name) if from_file else load_preset(name)
    section = None if from_file else load_section(name, SECTION)
    figures = section or load_section(_MEASURED_ON, SECTION)
    assert figures is not None, "the preset that others fall back to has the section"
    software = Software(**figures["software"])
    if section is None:
        software = Software(
            **{
                **asdict(software),
                "matmul_efficiency": device.matmul_efficiency,
                "collective_bandwidth": inside.bandwidth,
            }
        )
    return Machine(
        device=device,
        inside_node=inside,
        between_nodes=between,
        software=software,
        calibrated=section is not None,
        devices_per_node=devices_per_node,
    )
