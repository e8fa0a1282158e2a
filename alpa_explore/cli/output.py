"""What commands print: JSON for programs, one line for a complaint."""

from __future__ import annotations

import json
import sys
from typing import Any

from alpa_explore.plans.printable import printable


def print_json(value: Any) -> None:
    """`value` as JSON on stdout; every figure is SI and has its unit in the key."""
    print(json.dumps(value, ensure_ascii=False, allow_nan=False, indent=1))


def complain(message: str) -> None:
    """One line on stderr."""
    print(f"alpa-explore: {printable(message)}", file=sys.stderr, flush=True)
