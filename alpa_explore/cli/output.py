"""Output of commands: JSON for programs, one-line messages for people."""

from __future__ import annotations

import json
import sys
from typing import Any

from alpa_explore.plans.printable import printable


def print_json(value: Any) -> None:
    """Print `value` as JSON on stdout; figures are in SI units, which their keys name."""
    print(json_text(value))


def json_text(value: Any) -> str:
    """What `print_json` prints."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False, indent=1)


def complain(message: str) -> None:
    """Print a message as one line on stderr."""
    print(f"alpa-explore: {printable(message)}", file=sys.stderr, flush=True)
