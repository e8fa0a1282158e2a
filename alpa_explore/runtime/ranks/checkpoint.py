"""Save trained weights in the format of torch.distributed.checkpoint.

Each rank writes its boxes; replicas are written once.

`torch.distributed.checkpoint.load` reads them in any other sharding, and
`torch.distributed.checkpoint.format_utils.dcp_to_torch_save` converts them to one file. Names are those of the model.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.default_planner import DefaultSavePlanner
from torch.distributed.checkpoint.metadata import ChunkStorageMetadata, MetadataIndex, TensorProperties
from torch.distributed.checkpoint.planner import SavePlan, TensorWriteData, WriteItem, WriteItemType
from torch.distributed.checkpoint.state_dict_saver import save

from alpa_explore.errors import RunError
from alpa_explore.programs.instruction import Box

Piece = tuple[str, tuple[int, ...], Box, torch.Tensor]
"""(name, shape of the whole tensor, box, value of the box)."""


def save_weights(pieces: list[Piece], folder: Path) -> None:
    """Save the pieces of this rank; all ranks must call it.

    The boxes of a name must be equal or disjoint over all ranks.
    RunError where the weights cannot be written.
    """
    try:
        save({}, checkpoint_id=folder, planner=_PiecePlanner(pieces))
    except CheckpointException as error:  # a BaseException in torch
        rank, (cause, _) = next(iter(error.failures.items()))
        raise RunError(
            "The trained weights were not saved",
            found=f"{folder}, rank {rank}: {type(cause).__name__}: {cause}",
            remedy="Free some space, or give a --folder on another disk.",
        ) from error


class _PiecePlanner(DefaultSavePlanner):
    """Saves boxes; torch's own planner saves shards of DTensors, which need a mesh."""

    def __init__(self, pieces: list[Piece]) -> None:
        super().__init__(flatten_state_dict=False)  # there is none
        self._pieces: Mapping[tuple[str, tuple[int, ...]], torch.Tensor] = {
            (name, tuple(start for start, _ in box)): value for name, _, box, value in pieces
        }
        self._items = [self._item(*piece) for piece in pieces]

    def create_local_plan(self) -> SavePlan:
        """The pieces of this rank; the global plan removes replicas."""
        self.plan = SavePlan(self._items)
        return self.plan

    def lookup_object(self, index: MetadataIndex) -> Any:
        """The value of an item."""
        assert index.offset is not None, "pieces have a place"
        return self._pieces[index.fqn, tuple(index.offset)]

    @staticmethod
    def _item(name: str, shape: tuple[int, ...], box: Box, value: torch.Tensor) -> WriteItem:
        offsets = torch.Size([start for start, _ in box])
        return WriteItem(
            index=MetadataIndex(name, offsets),
            type=WriteItemType.SHARD,
            tensor_data=TensorWriteData(
                chunk=ChunkStorageMetadata(offsets=offsets, sizes=value.size()),
                size=torch.Size(shape),
                properties=TensorProperties.create_from_tensor(value),
            ),
        )
