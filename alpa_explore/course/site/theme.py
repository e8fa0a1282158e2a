"""What differs between figures in the light and in the dark theme: template, ground, colours of lines and text.

Figures are made in the light theme. For the dark one the script replaces their template, the colours of their ground,
and those of ink, wherever one of these stands alone as a value.
"""

from __future__ import annotations

import json
from typing import Any

from alpa_explore.figures.style import CONFIG, empty, faint, ground, ink, template


def themes() -> dict[str, Any]:
    """For the script: the templates, the ground, and pairs of colours (light, dark)."""
    return {
        "config": CONFIG,
        "templates": {theme: _plain(template(theme)) for theme in ("light", "dark")},
        "ground": {theme: ground(theme) for theme in ("light", "dark")},
        "ink": {theme: ink(theme) for theme in ("light", "dark")},
        "pairs": {colour("light"): colour("dark") for colour in (ink, faint, empty)},
    }


def _plain(value: Any) -> Any:
    return json.loads(json.dumps(value.to_plotly_json()))
