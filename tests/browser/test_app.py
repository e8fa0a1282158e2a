"""`alpa-explore app`: the explorer alone, served by voila."""

import psutil
import pytest

from tests.browser.harness.explorer import first_explorer, seen_figure, show_tab, slider
from tests.browser.harness.page import AppPage

pytestmark = [pytest.mark.browser, pytest.mark.slow]


def test_the_app_shows_the_explorer_alone_on_loopback_only_with_a_token(app: AppPage) -> None:
    refused = app.page.request.get(app.server.address.url, max_redirects=0)
    assert "login" in refused.headers["location"], "the printed token is required"
    app.load("?theme=dark")
    explorer = first_explorer(app)
    assert "alpa-dark" in (explorer.get_attribute("class") or "")
    assert app.page.title() == "alpa_explore"
    assert explorer.locator(".alpa-stages button").count() == 2
    assert app.page.locator(".alpa-saved:visible").count() == 0, "no table while the explorer itself is there"

    show_tab(explorer, "t_max")
    before = seen_figure(app, explorer)["data"]
    slider(explorer, "B, microbatches").press("ArrowRight")
    app.wait_until(lambda: seen_figure(app, explorer)["data"] != before, "B moves the figure")
    app.rest()
    assert app.counts()["asked"] > 0

    server = psutil.Process(app.server.process_id)
    family = [server, *server.children(recursive=True)]
    assert len(family) > 1, "it has a kernel"
    listening = {c.laddr.ip for p in family for c in p.net_connections("inet") if c.status == psutil.CONN_LISTEN}
    assert listening == {"127.0.0.1"}
