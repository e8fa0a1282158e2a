"""What the benchmarks of the paper's tables saw, kept in paper_rows.json: catalogue name -> figures of its row."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from alpa_explore.models.catalog import names

OWN = "of its own"
"""In the name of a baseline that has other layers, or other microbatches, than the automatic plan."""
STORE = Path(__file__).parent / "paper_rows.json"


def rows() -> dict[str, dict[str, Any]]:
    """What was stored."""
    return json.loads(STORE.read_text(encoding="utf-8")) if STORE.exists() else {}


def keep(name: str, **figures: Any) -> None:
    """Put `figures` into the row of a model, and write the file: a run that is stopped loses one row at most."""
    known = rows()
    known[name] = known.get(name, {}) | figures
    order = names()
    known = {name: known[name] for name in sorted(known, key=order.index)}
    STORE.write_text(json.dumps(known, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
