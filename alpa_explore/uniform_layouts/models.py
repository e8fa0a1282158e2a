"""The model that is asked about: a catalogue name, or the path of a Hugging Face config.json."""

from __future__ import annotations

from dataclasses import dataclass

from alpa_explore.errors import OptionError
from alpa_explore.models.catalog import CatalogEntry, entry


@dataclass(frozen=True, slots=True, kw_only=True)
class LayoutModel:
    """A model whose layouts are asked for."""

    entry: CatalogEntry

    @property
    def sequence(self) -> int:
        """Tokens of a sample; 1 where it is an image."""
        return self.entry.sequence or 1

    @property
    def name(self) -> str:
        """As the user gave it, with the length of its samples where that is not the model's own."""
        return self.entry.name


def layout_model(model: str, sequence: int | None = None) -> LayoutModel:
    """The model of a catalogue name or of the path of a config.json.

    OptionError for a model that is neither; otherwise as `models.entry`.
    """
    if not isinstance(model, str):
        raise OptionError(
            "Layouts are enumerated for a model that can be built with few blocks",
            found=type(model).__name__,
            remedy="Give a name that `alpa-explore models` lists, or the path of a Hugging Face config.json; a model "
            "of your own is planned by `ax.plan`.",
        )
    return LayoutModel(entry=entry(model, sequence))
