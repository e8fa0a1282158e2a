"""One device under a strategy: its local shapes, the blocks of sharded dims it holds, the addends it contributes."""

from dataclasses import dataclass

from alpa_explore.graph import Operator, Tensor
from alpa_explore.sharding.spec import PARTIAL, Spec, local_shape
from alpa_explore.sharding.strategy import Strategy


@dataclass(frozen=True, slots=True, kw_only=True)
class Shard:
    """An operator with its tensors on the device at `coordinate` of a mesh."""

    operator: Operator
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    strategy: Strategy
    mesh_shape: tuple[int, ...]
    coordinate: tuple[int, ...]

    def input_shape(self, place: int) -> tuple[int, ...]:
        """Local shape of an input."""
        return local_shape(self.strategy.inputs[place], self.inputs[place].shape, self.mesh_shape)

    def output_shape(self, place: int) -> tuple[int, ...]:
        """Local shape of an output."""
        return local_shape(self.strategy.outputs[place], self.outputs[place].shape, self.mesh_shape)

    def block(self, spec: Spec, dim: int) -> int:
        """Number of the block of `dim` that the device holds: a mixed-radix number whose digits are the coordinates
        along the axes that shard `dim`, the first axis most significant."""
        block = 0
        for axis, placement in enumerate(spec):
            if placement == dim:
                block = block * self.mesh_shape[axis] + self.coordinate[axis]
        return block

    def synced_axes(self) -> tuple[int, ...]:
        """Axes along which devices exchange something while the operator runs."""
        return tuple(axis for axis, exchanges in enumerate(self.strategy.exchanges) if exchanges)

    def summed_axes(self) -> tuple[int, ...]:
        """Axes along which the first output is a pending sum over shards of the first input."""
        pairs = zip(self.strategy.inputs[0], self.strategy.outputs[0], strict=True)
        return tuple(axis for axis, (given, made) in enumerate(pairs) if made == PARTIAL and given >= 0)

    def adds(self, place: int) -> bool:
        """Whether this device adds the input at `place` to a pending sum: of the devices that all hold a copy of it,
        the first one does."""
        pairs = zip(self.strategy.inputs[place], self.strategy.outputs[0], strict=True)
        return not any(
            coordinate and made == PARTIAL and given != PARTIAL
            for coordinate, (given, made) in zip(self.coordinate, pairs, strict=True)
        )
