"""The four cards of the overview."""

from collections.abc import Callable
from html import escape

from alpa_explore import units
from alpa_explore.plans.plan import Plan
from alpa_explore.plans.report.tables import chosen_t_max
from alpa_explore.plans.report.text import plan_words, sentence
from alpa_explore_widgets.overview.drawing import HEIGHT, Card, Drawing, box, line
from alpa_explore_widgets.overview.parts import cluster_card, layers_card
from alpa_explore_widgets.overview.times import timeline_card, why_card

CARDS: tuple[Callable[[Plan], Card], ...] = (layers_card, cluster_card, timeline_card, why_card)
"""In the order of reading."""


def overview_html(plan: Plan) -> str:
    """All cards; the heading of each is a button that names the tab of depth as `data-tab`."""
    return f'<div class="alpa-cards">{"".join(_card_html(make(plan)) for make in CARDS)}</div>'


def _card_html(card: Card) -> str:
    tab, line = escape(card.tab), escape(card.line)
    return (
        f'<section class="alpa-card" aria-label="{tab}"><header><button type="button" data-tab="{tab}" '
        f'title="Show the tab {tab}">{tab} ›</button><p title="{line}">{line}</p></header>{card.drawing}</section>'
    )


_WIDTH, _GAP, _HEAD, _TITLE = 470, 30, 46, 44
"""Of a card, between two, of the heading of the picture and of a card, in pixels."""
_LETTERS = 78
"""Of a line of a card."""
_WAIT = "#e8e8e8"
_STYLE = """
text { font: 11px sans-serif; fill: #555; } .title { font-weight: 600; font-size: 13px; fill: #222; }
.middle { text-anchor: middle; } .end, .row-name { text-anchor: end; } .middle.alpa-on-device { fill: #222; }
.alpa-edged { stroke: #fff; stroke-width: 1.5; vector-effect: non-scaling-stroke; } .alpa-pale { fill-opacity: 0.22; }
.alpa-unused, .alpa-idle { fill: #e8e8e8; }
.alpa-dotted { fill: none; stroke: #555; stroke-dasharray: 2 3; vector-effect: non-scaling-stroke; }
"""
_ABOVE, _FOOT = 18.0, 20.0
"""Room for the name of the chosen one, and for the axis, in pixels."""
_NEAR = 2.0
"""Candidates are drawn up to so many times the least time."""
_DOT, _DOT_HEIGHT = 0.008, 5.0
"""Width of a dot as a share of the drawing, and its height in pixels."""
_COLOR, _CHOSEN = "#56b4e9", "#d55e00"


def plan_svg(plan: Plan) -> str:
    """The cards of the overview and the t_max sweep, two in a row."""
    cards = [make(plan) for make in (*CARDS, t_max_card)]
    width, pitch = 2 * _WIDTH + 3 * _GAP, HEIGHT + _TITLE + _GAP
    height = _HEAD + -(-len(cards) // 2) * pitch
    placed = "".join(
        f'<g transform="translate({_GAP + place % 2 * (_WIDTH + _GAP)} {_HEAD + place // 2 * pitch})">{_card(card)}</g>'
        for place, card in enumerate(cards)
    )
    name = escape(f"{plan.model.name} on {plan.cluster}: {plan_words(plan)}")
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" role="img">'
        f"<title>{name}. {escape(sentence(plan))}</title><style>{_STYLE}</style>"
        '<rect width="100%" height="100%" fill="#fff"/>'
        f'<text x="{_GAP}" y="24" class="title">{name}</text>{placed}</svg>'
    )


def t_max_card(plan: Plan) -> Card:
    """A dot for each evaluated candidate: to the right its t_max, upwards its time."""
    chosen, least = chosen_t_max(plan), plan.predicted.iteration_seconds
    points = [
        (point.t_max_seconds, point.iteration_seconds)
        for point in plan.t_max_sweep
        if point.iteration_seconds is not None and point.iteration_seconds <= _NEAR * least
    ]
    text = f"T {units.seconds(least)} where no stage takes longer than {units.seconds(plan.predicted.t_max_seconds)}"
    drawing = Drawing(left=74)
    if chosen is None or not points:
        drawing.text(0.0, HEIGHT / 2, "the candidates were not recorded")
        return Card(tab="t_max", line=text, name=f"Candidates for t_max: {text}", figure=drawing)
    first, last = min(t for t, _ in points), max(t for t, _ in points)
    high = max(max(seconds for _, seconds in points), 1.01 * least)
    for t, seconds in points:
        x = (1.0 - _DOT) * (t - first) / (last - first) if last > first else 0.5
        y = _ABOVE + (HEIGHT - _ABOVE - _FOOT) * (high - seconds) / (high - 0.98 * least)
        is_chosen = t == plan.t_max_sweep[chosen].t_max_seconds
        drawing.plain(box(x, y - _DOT_HEIGHT / 2, _DOT, _DOT_HEIGHT, fill=_CHOSEN if is_chosen else _COLOR))
        if is_chosen:
            drawing.plain(line(x + _DOT / 2, _ABOVE, HEIGHT - _FOOT))
            drawing.text(min(max(x, 0.1), 0.9), _ABOVE / 2, "chosen", css="middle", color=_CHOSEN)
    drawing.row_name(_ABOVE, units.seconds(high))
    drawing.row_name(HEIGHT - _FOOT, units.seconds(0.98 * least))
    drawing.text(0.0, HEIGHT - _FOOT / 2, units.seconds(first))
    drawing.text(1.0, HEIGHT - _FOOT / 2, f"t_max {units.seconds(last)}", css="end")
    return Card(tab="t_max", line=text, name=f"Candidates for t_max: {text}", figure=drawing)


def _card(card: Card) -> str:
    text_line = card.line if len(card.line) <= _LETTERS else f"{card.line[: _LETTERS - 1]}…"
    text = f'<text y="14" class="title">{escape(card.tab)}</text><text y="30">{escape(text_line)}</text>'
    listed = []
    for column, (heading, items) in enumerate(card.lists):
        x, y = column * _WIDTH / 2, card.height + 16
        listed.append(f'<text x="{x}" y="{y}">{escape(heading)}</text>')
        for row, (share, what, color) in enumerate(items, start=1):
            at, ink = y + 15 * row, color or _WAIT
            square = "" if color is None else f'<rect x="{x}" y="{at - 8}" width="9" height="9" fill="{ink}"/>'
            listed.append(f'{square}<text x="{x + 14}" y="{at}">{escape(share)} {escape(what)}</text>')
    return f'{text}<g transform="translate(0 {_TITLE})">{card.figure.svg(_WIDTH)}{"".join(listed)}</g>'
