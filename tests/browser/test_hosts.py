"""The show of attached hosts: attach, measure, plan, train, lose a link, resume under another plan, with real keys."""

import re
from pathlib import Path

import pytest
import torch
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save

import alpa_explore as ax
from alpa_explore.runtime.checkpoints.description import find_checkpoint
from tests.browser.harness.explorer import first_explorer, seen_figure, tab, type_number, type_text
from tests.browser.harness.page import LabPage
from tests.hosts.hosts import Hosts, missing
from tests.waiting import LIMIT_SECONDS

pytestmark = pytest.mark.browser
CELL = """from alpa_explore_widgets import explore
explore("mlp-tiny", cluster="1x2:cpu", num_microbatches=4, num_layers=2, delta=1.0, precision="float32")"""
STEPS, EVERY = 60, 5
"""Few: after some hundred steps of this model in float32 any two plans differ by more, as rounding has grown."""
RATE = "5mbit"
"""So that the steps last until the link is cut."""
TOLERANCE = 1e-6


def weights(run: Path, into: Path) -> dict[str, torch.Tensor]:
    """The weights in the checkpoint after the last step."""
    folder, description, _ = find_checkpoint(run)
    assert description.step == STEPS
    dcp_to_torch_save(folder, into)
    return {name: value for name, value in torch.load(into).items() if not name.startswith("optimizer.")}


@pytest.mark.sweep(kept=0)  # its parts are tested in tests/hosts and tests/widgets
def test_a_run_on_two_hosts_loses_a_link_and_is_finished_under_another_plan(lab: LabPage, tmp_path: Path) -> None:
    if lacks := missing():
        pytest.skip(lacks)
    with Hosts(2) as hosts:
        scheduler = hosts.dask(hide=[lab.server.home])
        for host in range(2):
            hosts.limit(host, RATE)
        lab.show(CELL)
        explorer = first_explorer(lab)

        def press(name: str | re.Pattern[str]) -> None:
            explorer.get_by_role("button", name=name, exact=True).press("Enter")

        def planned_for(cluster: str) -> None:
            wanted = f"mlp-tiny on {cluster}"
            lab.wait_until(lambda: wanted in (explorer.get_attribute("aria-label") or ""), wanted)

        tab(explorer, "Run").press("Enter")
        explorer.get_by_role("button", name="Attached hosts").press("Enter")
        type_text(explorer.get_by_role("textbox", name="Attach"), scheduler)
        press("Attach")
        found = explorer.locator(".alpa-attachment")
        found.get_by_text("As a cluster").wait_for()
        assert found.get_by_role("region", name="Links").get_by_text("node1").count() > 0
        both = found.locator("b").inner_text()
        press("Plan for these")
        planned_for(both)

        type_number(explorer, "Steps", str(STEPS))
        type_number(explorer, "Checkpoint every", str(EVERY))
        press(re.compile(r"^Start "))
        status = explorer.locator(".alpa-run-status[role=status]")
        status.get_by_text(re.compile("last checkpoint is of step")).wait_for()
        seen = len(seen_figure(lab, explorer)["data"][0]["y"])
        lab.wait_until(lambda: len(seen_figure(lab, explorer)["data"][0]["y"]) > seen, "the curve of the loss grows")

        hosts.cut(1)
        reason = status.get_by_text(re.compile("node1 (is gone|does not answer)")).first
        reason.wait_for()
        hosts.restore(1)
        told = status.text_content()
        folder = Path(re.search(r"/\S*/mlp-tiny[\w-]*", told)[0])
        kept = find_checkpoint(folder)[1].step
        assert 0 < kept < STEPS

        type_number(explorer, "nodes", "1")
        press("Plan")
        planned_for(both.replace("2x", "1x"))
        press("Resume")
        status.get_by_text(f"Done: {STEPS} steps").wait_for()
        again = Path(status.locator("code").first.inner_text())
        assert again != folder
    first, second = ax.load_plan(folder / "plan.json"), ax.load_plan(again / "plan.json")
    assert first.cluster != second.cluster
    whole = tmp_path / "whole"
    ax.launch(first, steps=STEPS, checkpoint_every=STEPS, device="cpu", folder=whole).result(LIMIT_SECONDS)
    ours, theirs = weights(again, tmp_path / "a.pt"), weights(whole, tmp_path / "b.pt")
    assert ours.keys() == theirs.keys()
    worst = max(float((ours[name] - theirs[name]).abs().max()) for name in ours)
    print(f"resumed after step {kept}; worst difference of a weight {worst:.3g}")
    assert worst <= TOLERANCE
