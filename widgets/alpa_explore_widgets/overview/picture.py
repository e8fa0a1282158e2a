"""The plan as one SVG that needs neither a kernel nor a style sheet: what a saved notebook shows, also on GitHub."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from alpa_explore.plans.report.text import plan_words, sentence
from alpa_explore_widgets.overview.cards import CARDS
from alpa_explore_widgets.overview.drawing import HEIGHT, Card
from alpa_explore_widgets.overview.t_max import t_max_card

if TYPE_CHECKING:
    from alpa_explore.plans.plan import Plan

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


def _card(card: Card) -> str:
    line = card.line if len(card.line) <= _LETTERS else f"{card.line[: _LETTERS - 1]}…"
    text = f'<text y="14" class="title">{escape(card.tab)}</text><text y="30">{escape(line)}</text>'
    listed = []
    for column, (heading, items) in enumerate(card.lists):
        x, y = column * _WIDTH / 2, card.height + 16
        listed.append(f'<text x="{x}" y="{y}">{escape(heading)}</text>')
        for row, (share, what, color) in enumerate(items, start=1):
            at, ink = y + 15 * row, color or _WAIT
            square = "" if color is None else f'<rect x="{x}" y="{at - 8}" width="9" height="9" fill="{ink}"/>'
            listed.append(f'{square}<text x="{x + 14}" y="{at}">{escape(share)} {escape(what)}</text>')
    return f'{text}<g transform="translate(0 {_TITLE})">{card.figure.svg(_WIDTH)}{"".join(listed)}</g>'
