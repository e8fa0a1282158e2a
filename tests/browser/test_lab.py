"""JupyterLab as `alpa-explore lab` configures it."""

import psutil
import pytest

from tests.browser.harness.page import LabPage

pytestmark = [pytest.mark.browser, pytest.mark.slow]

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
