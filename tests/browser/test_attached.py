"""Hosts are attached on the Run tab by real keys, and planned for."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.browser.harness.explorer import first_explorer, tab, type_text
from tests.browser.harness.page import LabPage

pytestmark = pytest.mark.browser
CELL = """from alpa_explore_widgets import explore
explore("mlp-tiny", cluster="1x2:cpu", num_microbatches=4, num_layers=2, delta=1.0, precision="float32")"""


@pytest.fixture(scope="module")
def scheduler() -> Iterator[str]:
    """A scheduler with a worker, both in this process."""
    from distributed import Scheduler, SpecCluster, Worker

    options = {"host": "127.0.0.1", "dashboard": False}
    with SpecCluster(
        scheduler={"cls": Scheduler, "options": {**options, "port": 0, "dashboard_address": "127.0.0.1:0"}},
        workers={0: {"cls": Worker, "options": {**options, "nthreads": 1}}},
    ) as cluster:
        yield cluster.scheduler_address


def test_hosts_are_attached_and_planned_for_by_keyboard(lab: LabPage, scheduler: str) -> None:
    lab.show(CELL)
    explorer = first_explorer(lab)
    tab(explorer, "Run").press("Enter")
    explorer.get_by_role("button", name="Attached hosts").press("Enter")
    address, found = explorer.get_by_role("textbox", name="Attach"), explorer.locator(".alpa-attachment")

    type_text(address, "tcp://127.0.0.1:1")
    explorer.get_by_role("button", name="Attach", exact=True).press("Enter")
    found.get_by_text("connection refused").wait_for()
    plan = explorer.get_by_role("button", name="Plan for these")
    assert plan.is_disabled()

    type_text(address, scheduler)
    explorer.get_by_role("button", name="Attach", exact=True).press("Enter")
    found.get_by_text("As a cluster").wait_for()
    assert found.get_by_role("region", name="Hosts").get_by_text("127.0.0.1").count() == 1
    assert found.get_by_role("region", name="Links").get_by_text("inside").count() == 1
    made = found.locator("b").inner_text()  # 1x2:attached-cpu
    plan.press("Enter")
    device = explorer.get_by_label("device", exact=True)
    lab.wait_until(lambda: device.input_value() == made.partition(":")[2], "the controls show the attached cluster")
    label = f"mlp-tiny on {made}"
    lab.wait_until(lambda: label in (explorer.get_attribute("aria-label") or ""), "it is planned for")
    assert explorer.get_by_label("Where", exact=True).input_value() == "dask"
    assert explorer.get_by_role("textbox", name="Scheduler").input_value() == scheduler
