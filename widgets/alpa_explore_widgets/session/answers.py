"""What is known of the layouts of a model on a cluster, and of its best layouts on other clusters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from alpa_explore.execution.progress import Progress
    from alpa_explore.uniform_layouts.measured import MeasuredLayout
    from alpa_explore.uniform_layouts.ranking import Layouts
    from alpa_explore.uniform_layouts.scaling import Scaling
    from alpa_explore_widgets.session.fault import Fault


@dataclass(frozen=True, slots=True, kw_only=True)
class LayoutQuestion:
    """What decides on the layouts of a model."""

    model: str
    nodes: int
    devices_per_node: int
    device: str
    figures: tuple[float | None, ...]
    """Those of the device that the user changed."""
    global_batch: int
    sequence: int | None
    precision: str | None

    @property
    def words(self) -> str:
        """'llama-3-8b on 1x8:h100, global batch 128'."""
        where = f"{self.nodes}x{self.devices_per_node}:{self.device}"
        return f"{self.model} on {where}, global batch {self.global_batch:,}"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LayoutsAnswer:
    """The layouts of the last question."""

    question: LayoutQuestion
    layouts: Layouts | None = None
    """None before any is known."""
    measured: tuple[MeasuredLayout, ...] = ()
    running: bool = False
    progress: Progress | None = None
    fault: Fault | None = None
    """Why there is no answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingQuestion:
    """What decides on the best layouts on other clusters; prices do not."""

    model: str
    devices: tuple[str, ...]
    nodes: tuple[int, ...]
    devices_per_node: int | None
    global_batch: int
    sequence: int | None
    precision: str | None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ScalingAnswer:
    """The points of the last question."""

    question: ScalingQuestion
    scaling: Scaling | None = None
    running: bool = False
    progress: Progress | None = None
    fault: Fault | None = None
