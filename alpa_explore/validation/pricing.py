"""Prices the layouts of measured runs with the planner's costs, through `baselines`."""

from __future__ import annotations

from dataclasses import dataclass

from alpa_explore.errors import OptionError
from alpa_explore.validation.requests import ModelKey, RunPrice, RunRequest


@dataclass(frozen=True, slots=True)
class LayoutPricer:
    """Stands in for the pricing of layouts until `baselines.layout_price` is there: refuses every run."""

    def model(self, key: ModelKey) -> None:
        """OptionError."""
        raise OptionError("Layouts cannot be priced yet", found=str(key.config), remedy="Merge baselines.layout_price.")

    def price(self, model: None, run: RunRequest) -> RunPrice:
        """Never called."""
        raise NotImplementedError
