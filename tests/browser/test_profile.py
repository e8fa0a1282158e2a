"""The show of timed kernels: attach a worker, press Profile, watch the share grow, see the plan change."""

import pytest
from distributed import Scheduler, SpecCluster, Worker

from tests.browser.harness.explorer import first_explorer, tab, type_number, type_text
from tests.browser.harness.page import LabPage

pytestmark = pytest.mark.browser
CELL = """from alpa_explore_widgets import explore
explore("mlp-tiny", cluster="1x2:cpu", num_microbatches=4, num_layers=2, delta=1.0, precision="float32")"""
SHARE = "0.0 if Out[1].session.store.state.kernel_times is None else Out[1].session.store.state.kernel_times.share"
SECONDS = "Out[1].plan.predicted.iteration_seconds"


@pytest.mark.sweep(kept=0)  # its parts are tested in tests/attached and tests/widgets
def test_kernels_are_timed_on_an_attached_worker_and_change_the_plan(lab: LabPage) -> None:
    quiet = {"dashboard": False, "dashboard_address": ":0"}
    worker = {"cls": Worker, "options": {"host": "127.0.0.1", "nthreads": 1, "dashboard": False}}
    scheduler = {"cls": Scheduler, "options": {"host": "127.0.0.1", "port": 0, **quiet}}
    with SpecCluster(scheduler=scheduler, workers={0: worker}) as cluster:
        lab.show(CELL)
        explorer = first_explorer(lab)
        before = float(lab.ask(SECONDS))
        tab(explorer, "Run").press("Enter")
        explorer.get_by_role("button", name="Attached hosts").press("Enter")
        type_text(explorer.get_by_role("textbox", name="Attach"), cluster.scheduler_address)
        explorer.get_by_role("button", name="Attach", exact=True).press("Enter")
        explorer.locator(".alpa-attachment").get_by_text("As a cluster").wait_for()

        explorer.get_by_role("button", name="Timed kernels").press("Enter")
        type_number(explorer, "Seconds", "600")
        explorer.get_by_role("button", name="Profile", exact=True).press("Enter")
        bar = explorer.get_by_role("progressbar", name="Share of the plan's time")
        bar.wait_for()
        lab.wait_until(lambda: float(lab.ask(SHARE)) > 0.9, "the share of timed kernels grows")
        explorer.locator(".alpa-share").get_by_text("of the computing time were timed").wait_for()
        assert cluster.scheduler_address in (explorer.get_by_text("kernels timed on").first.text_content() or "")
        lab.wait_until(lambda: float(lab.ask(SECONDS)) != before, "the planner has new costs")
        assert lab.ask("Out[1].plan.cluster.device.measured.device").endswith("CPU'")
