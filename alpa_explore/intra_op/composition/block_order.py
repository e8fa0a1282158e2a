"""The blocks of a layer range in their order: their choices at several prices, taken together table by table."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np

from alpa_explore.intra_op.composition.block_tables import BlockChoices, BlockTable
from alpa_explore.intra_op.stage.stage_totals import FIGURES
from alpa_explore.numerics.arrays import Floats, Ints


class BlockOrder:
    """The blocks of a range in their order, of which many have the same table. Rows [prices, places] are those of the
    choices of each table."""

    def __init__(self, tables: Sequence[BlockTable]) -> None:
        self.places: dict[BlockTable, list[int]] = {}
        for place, table in enumerate(tables):
            self.places.setdefault(table, []).append(place)
        self._tables = tables

    def codes(self, prices: Ints, shared: Ints, separators: Ints) -> Ints:
        """[prices, blocks]: a number for each price and state of each block (`BlockTable.choices_at`)."""
        shapes = np.array([table.shared_costs.shape[1:] for table in self._tables], dtype=np.int64)
        of_shared = np.where(shapes[:, 0] > 1, shared[:, None], 0)
        codes: Ints = (prices[:, None] * shapes[:, 0] + of_shared) * shapes[:, 1] + separators[:, :-1]
        return codes * shapes[:, 2] + separators[:, 1:]

    def totals(self, choices: Mapping[BlockTable, BlockChoices], rows: Mapping[BlockTable, Ints]) -> Floats:
        """[prices, `FIGURES`], added from left to right."""
        parts = np.empty((len(self._tables), len(next(iter(rows.values()))), FIGURES))
        for table, places in self.places.items():
            parts[places] = choices[table].totals[rows[table]].swapaxes(0, 1)
        totals: Floats = parts.sum(axis=0)
        return totals

    def output_bytes(self, choices: Mapping[BlockTable, BlockChoices], rows: Mapping[BlockTable, Ints]) -> Floats:
        """[prices, outputs], block after block."""
        widths = np.array([choices[table].output_bytes.shape[1] for table in self._tables])
        ends = np.cumsum(widths)
        sizes = np.empty((len(next(iter(rows.values()))), int(ends[-1])))
        for table, places in self.places.items():
            width = choices[table].output_bytes.shape[1]
            at = (ends[places] - width)[:, None] + np.arange(width)
            sizes[:, at] = choices[table].output_bytes[rows[table]]
        return sizes

    def choices(
        self, choices: Mapping[BlockTable, BlockChoices], rows: Mapping[BlockTable, Ints]
    ) -> Iterator[tuple[tuple[int, ...], ...]]:
        """For each price the choice of every block."""
        parts: list[Iterable[tuple[int, ...]]] = [()] * len(self._tables)
        for table, places in self.places.items():
            of_table = choices[table].choices
            for place, of_place in zip(places, rows[table].T.tolist(), strict=True):
                parts[place] = [of_table[row] for row in of_place]
        return zip(*parts, strict=True)
