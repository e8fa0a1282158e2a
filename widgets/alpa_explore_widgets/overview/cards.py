"""The four cards of the overview."""

from collections.abc import Callable
from html import escape

from alpa_explore.plans.plan import Plan
from alpa_explore_widgets.overview.cluster import cluster_card
from alpa_explore_widgets.overview.drawing import Card
from alpa_explore_widgets.overview.layers import layers_card
from alpa_explore_widgets.overview.timeline import timeline_card
from alpa_explore_widgets.overview.why import why_card

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
