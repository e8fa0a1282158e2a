"""JupyterLab as `alpa-explore lab` configures it."""

from __future__ import annotations

import psutil
import pytest

from tests.browser.harness.page import LabPage

pytestmark = [pytest.mark.browser, pytest.mark.slow]

_NOTIFY = """async (message) => {
  const app = window.jupyterapp;
  await app.restored;
  await app.commands.execute('apputils:notify', { message, type: 'info', options: { autoClose: false } });
}"""
_HAS_PLUGIN = "(name) => window.jupyterapp.hasPlugin(`@jupyterlab/apputils-extension:${name}`)"
CELLS = ("import ipywidgets", "print('seen')", "ipywidgets.IntSlider(description='B')")


def test_running_and_saving_a_notebook_of_the_course_leaves_the_file_as_it_was(lab: LabPage) -> None:
    name = lab.server.write_notebook("notebooks/07_small.ipynb", *CELLS)
    before = (lab.server.root / name).read_text()
    lab.open(name)
    lab.run_all()
    assert lab.text() == "seen\n"
    lab.save()
    assert (lab.server.root / name).read_text() == before


def test_a_notebook_of_the_users_own_keeps_its_outputs(lab: LabPage) -> None:
    name = lab.server.write_notebook("notebooks/07_small-Copy1.ipynb", *CELLS)
    lab.open(name)
    lab.run_all()
    lab.save()
    assert '"seen\\n"' in (lab.server.root / name).read_text()


def test_the_server_and_its_kernel_listen_on_loopback_only(lab: LabPage) -> None:
    family = [psutil.Process(lab.server.process_id), *psutil.Process(lab.server.process_id).children(recursive=True)]
    assert len(family) > 1, "it has a kernel"
    listening = {c.laddr.ip for p in family for c in p.net_connections("inet") if c.status == psutil.CONN_LISTEN}
    assert listening == {"127.0.0.1"}


def test_lab_does_not_offer_to_fetch_news(own_lab: LabPage) -> None:
    lab = own_lab
    asked: list[str] = []
    lab.page.on("request", lambda request: asked.append(request.url))
    lab.load(lab.server.write_notebook("news.ipynb", "1"))
    # Notices are shown in the order in which they are made, the offer once the page is restored: so before this one.
    lab.page.evaluate(_NOTIFY, "After the offer")
    lab.page.locator(".Toastify__toast", has_text="After the offer").wait_for()
    plugins = [lab.page.evaluate(_HAS_PLUGIN, name) for name in ("notification", "announcements")]
    assert plugins == [True, False], "what makes the offer is not there"
    assert len(lab.page.locator(".Toastify__toast").all_inner_texts()) == 1
    assert lab.page.get_by_text("Jupyter news").count() == 0
    assert not [url for url in asked if "/api/news" in url]
