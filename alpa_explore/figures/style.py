"""What all figures share: the colours of stages, two themes, a full sentence as title, and escaped text.

Figures are drawn without a theme: a colour that a theme decides is a function of it (`ink`, `faint`, `ground`, `empty`,
or a mixture of them), which `finished` calls. Imports plotly only then, so that other parts of the screen can use the
colours.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Sequence
from functools import cache, wraps
from html import escape
from typing import TYPE_CHECKING, Any, TypeAlias

from alpa_explore.units import printable

if TYPE_CHECKING:
    import plotly.graph_objects as go

Figure: TypeAlias = "go.Figure"
Trace: TypeAlias = dict[str, Any]
"""A trace or a part of a layout in plotly's words; what is callable in it is a function of the theme."""
Color: TypeAlias = "str | Callable[[str], str]"
"""'#rrggbb', or a function from a theme to it."""

OKABE_ITO = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442", "#999999")
"""The palette of Okabe and Ito, distinguishable with every kind of colour vision."""
PATTERNS = ("", "/", "x", ".", "-", "\\", "+", "|")
"""Hatching of stages 0–7, 8–15, …; the pair of colour and hatching does not repeat."""
_SHADES = (("#ffffff", 0.0), ("#ffffff", 0.55), ("#000000", 0.45))
"""Stages 0–7 have the colours of the palette, 8–15 the same with so much white, 16–23 with so much black."""
HEAT = "Cividis"
"""Colour scale of heatmaps; its lightness alone gives the order of values."""
CONFIG: dict[str, Any] = {
    "displaylogo": False,
    "showSendToCloud": False,
    "responsive": True,
    "scrollZoom": False,
    "displayModeBar": "hover",
    "modeBarButtonsToRemove": ["zoomIn2d", "zoomOut2d", "autoScale2d", "lasso2d", "select2d"],
}
"""plotly's configuration of every figure: no button that uploads it, and only the tools that do what nothing else does
(picture, zoom, pan, reset)."""
TOOL_PIXELS = 24
"""Width of plotly's tool bar, and of the right margin in which it stands."""
_TITLE_CHARACTERS = 118
"""Width at which a title is wrapped."""
_TRACES = ("bar", "heatmap", "scatter")
_DATA = frozenset(("x", "y", "z", "text", "hovertext", "customdata", "template"))
"""Properties that no theme changes, unless they are functions."""


def stage_color(index: int) -> str:
    """CSS colour of a stage, the same in both themes; after 24 stages it repeats and `stage_pattern` differs."""
    towards, share = _SHADES[index // len(OKABE_ITO) % len(_SHADES)]
    return str(mixed(OKABE_ITO[index % len(OKABE_ITO)], towards, share))


def mixed(color: Color, other: Color, share: float) -> Color:
    """`color` with so much of `other`."""
    if not share:
        return color
    if callable(color) or callable(other):
        return lambda theme: str(mixed(in_theme(color, theme), in_theme(other, theme), share))
    pairs = zip(_channels(color), _channels(other), strict=True)
    return "#" + "".join(f"{round(a + share * (b - a)):02X}" for a, b in pairs)


def in_theme(color: Color, theme: str) -> str:
    """A colour in a theme."""
    return color(theme) if callable(color) else color


def stage_pattern(index: int) -> str:
    """plotly's name of the hatching that distinguishes stage 8 from stage 0."""
    return PATTERNS[index // len(OKABE_ITO) % len(PATTERNS)]


def stage_marker(stage: int, edge: float = 0) -> Trace:
    """Marker of the bars of one stage, with a pale edge of some pixels. A stage is a trace of its own: plotly cannot
    hatch a trace of many colours."""
    color, base = stage_color(stage), OKABE_ITO[stage % len(OKABE_ITO)]
    marker: Trace = {"color": color, "line": {"width": edge} | ({"color": empty} if edge else {})}
    if shape := stage_pattern(stage):
        # In the colour of the palette; where that is the ground, away from the colour of text on it.
        over = base if base != color else "#ffffff" if ink_on(color) == "#000000" else "#000000"
        marker["pattern"] = {"shape": shape, "fgcolor": over, "fgopacity": 0.5, "size": 6, "solidity": 0.3}
    return marker


def stage_ink(stage: int) -> str:
    """The colour of text on the bars of a stage."""
    return str(ink_on(stage_color(stage)))


def stage_swatch(stage: int) -> str:
    """CSS background of a small square that stands for a stage, hatched like its bars."""
    color, base = stage_color(stage), OKABE_ITO[stage % len(OKABE_ITO)]
    return color if color == base else f"repeating-linear-gradient(135deg,{color} 0 2px,{base} 2px 3px)"


def hatching(shape: str) -> dict[str, Any]:
    """Hatching in the colour of each bar on a transparent ground; no hatching for ''."""
    return {"shape": shape, "fillmode": "replace", "size": 6, "solidity": 0.4} if shape else {}


def ink_on(color: Color) -> Color:
    """Black or white, whichever has more contrast on `color`."""
    if callable(color):
        return lambda theme: str(ink_on(color(theme)))
    shares = [channel / 255 for channel in _channels(color)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in shares]
    luminance = 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
    return "#000000" if luminance > 0.179 else "#ffffff"


def _channels(color: str) -> list[int]:
    """'#rrggbb' -> red, green and blue, 0 to 255."""
    return [int(color[i : i + 2], 16) for i in (1, 3, 5)]


def ink(theme: str) -> str:
    """Colour of lines and text."""
    return "#f2f2f2" if theme == "dark" else "#1f2933"


def faint(theme: str) -> str:
    """Colour of secondary lines and text."""
    return "#8a94a0" if theme == "dark" else "#7b8794"


def ground(theme: str) -> str:
    """Background colour."""
    return "#111111" if theme == "dark" else "#ffffff"


def halo(theme: str) -> str:
    """A shadow in the colour of the ground, for text that may lie across a line."""
    return ", ".join([f"0 0 3px {ground(theme)}"] * 4)


def empty(theme: str) -> str:
    """Colour of an empty box."""
    return "#2b2f36" if theme == "dark" else "#edf0f3"


def safe(text: str) -> str:
    """A name from a plan, escaped: plotly interprets tags, links included, in texts."""
    return escape(printable(text), quote=False)


def short(text: str, characters: int) -> str:
    """The end of a long name (names differ at their ends), escaped."""
    return safe(text if len(text) <= characters else "…" + text[1 - characters :])


def lines(*parts: str) -> str:
    """Lines of a hover text; empty ones are dropped."""
    return "<br>".join(part for part in parts if part)


@cache
def heat_scale(theme: str) -> list[list[Any]]:
    """The colour scale of heatmaps, the same in both themes, as places and colours."""
    from plotly.colors import get_colorscale

    scale: list[list[Any]] = get_colorscale(HEAT)
    return scale


@cache
def template(theme: str) -> go.layout.Template:
    """Plotly's template for the trace types that are used here, with our font sizes and colour bars; part of every
    figure."""
    import plotly.graph_objects as go
    import plotly.io as pio

    # A copy: plotly's objects are shared by threads, of which several may ask for their first figure at once.
    base = pio.templates["plotly_dark" if theme == "dark" else "plotly_white"].to_plotly_json()
    bar = {"outlinewidth": 0, "thickness": 12, "title": {"font": {"size": 12}}, "tickfont": {"size": 11}}
    base["data"]["heatmap"][0]["colorbar"] = bar
    template = go.layout.Template(layout=base["layout"], data={kind: base["data"][kind] for kind in _TRACES})
    axis = {"title": {"font": {"size": 13}}, "tickfont": {"size": 12}}
    y_axis = axis | {"ticklabelstandoff": 4}  # else names of rows touch what stands in them
    return template.update(
        layout={"colorway": OKABE_ITO, "xaxis": axis, "yaxis": y_axis, "coloraxis": {"colorbar": bar}}
    )


def layout_of(
    title: str, *, theme: str, height: float, characters: int = _TITLE_CHARACTERS, above: float = 0, **layout: Any
) -> Trace:
    """The layout of a figure: its title (one sentence, plain text, in lines of so many characters), theme, height in
    pixels and margins; `above` are more pixels between title and plot; `layout` overrides.

    The legend stands above the plot on the left, plotly's tool bar upright in the right margin.
    """
    wrapped = textwrap.wrap(printable(title), characters, break_on_hyphens=False) or [""]
    place = {"xref": "container", "xanchor": "left", "yref": "container", "yanchor": "top", "pad": {"l": 8}}
    text = "<br>".join(escape(line, quote=False) for line in wrapped)
    common = {
        "template": template(theme),
        "title": {"text": text, "font": {"size": 16}, "x": 0, "y": 1 - 14 / height, **place},
        "font": {"family": "system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif", "size": 13, "color": ink(theme)},
        "height": height,
        "margin": {"t": 46 + 20 * len(wrapped) + above, "r": TOOL_PIXELS, "b": 56, "l": 72},
        "hovermode": "closest",
        "hoverlabel": {"align": "left"},
        "bargap": 0,
        "paper_bgcolor": ground(theme),
        "plot_bgcolor": ground(theme),
        "modebar": {"orientation": "v", "bgcolor": "rgba(0,0,0,0)"},
        "legend": {"orientation": "h", "x": 0, "xanchor": "left", "y": 1, "yanchor": "bottom", "font": {"size": 12}},
    }
    margin = common["margin"] | layout.pop("margin", {})
    return common | {"margin": margin} | layout


class Drawing:
    """A figure without a theme: traces and a `layout_of`. With `around`, `height` is that of the plot alone, and the
    figure is higher by its margins, of which `around` differ."""

    def __init__(self, traces: Sequence[Trace], title: str, *, height: float, **layout: Any) -> None:
        self.traces, self.title, self.height, self.layout = traces, title, height, layout


def with_theme(draw: Callable[..., Drawing]) -> Callable[..., Figure]:
    """The function that draws the same as a figure in `theme`, 'light' or 'dark'."""

    @wraps(draw)
    def figure(*arguments: Any, theme: str = "light", **options: Any) -> Figure:
        return finished(draw(*arguments, **options), theme)

    return figure


def finished(drawn: Drawing, theme: str) -> Figure:
    """The figure in a theme.

    Without plotly's checks: those of the template alone take 10 ms, which is long while a slider moves. A test makes
    the same figures with the checks.
    """
    import plotly.graph_objects as go

    layout, height = dict(drawn.layout), drawn.height
    around = layout.pop("around", None)
    whole: Trace = layout_of(drawn.title, theme=theme, height=height, **layout)
    if around is not None:
        margin = whole["margin"] | around
        height += margin["t"] + margin["b"]
        whole |= {"margin": margin, "height": height, "title": whole["title"] | {"y": 1 - 20 / height}}
    known: dict[Any, Any] = {}
    whole = themed(whole, theme, known) | {"template": template(theme).to_plotly_json()}
    traces = [themed(trace, theme, known) for trace in drawn.traces]
    return go.Figure(data=traces, layout=whole, _validate=False)


def themed(value: Any, theme: str, known: dict[Any, Any]) -> Any:
    """`value` with all that is a function of the theme as it is in this theme; `known` are those called before."""
    if callable(value):
        if value not in known:
            known[value] = value(theme)
        return known[value]
    if isinstance(value, dict):
        return {
            name: part if name in _DATA and not callable(part) else themed(part, theme, known)
            for name, part in value.items()
        }
    if isinstance(value, list | tuple) and value and not isinstance(value[0], float | int):
        return [themed(part, theme, known) for part in value]
    return value
