"""%alpa and %%alpa show the same explorer as `explore`."""

from pathlib import Path
from typing import Any

import pytest
from alpa_explore_widgets import explorer as explorer_module
from alpa_explore_widgets import magics
from alpa_explore_widgets.explorer import Explorer
from IPython.core.interactiveshell import InteractiveShell

from alpa_explore.errors import OptionError
from tests.plans.example import example_plan
from tests.waiting import LIMIT_SECONDS


@pytest.fixture
def shell(planner: Any, drawn: list[Any], monkeypatch: pytest.MonkeyPatch) -> InteractiveShell:
    monkeypatch.setattr(explorer_module, "Backend", planner.functions)
    interactive_shell = InteractiveShell()
    interactive_shell.run_line_magic("load_ext", "alpa_explore_widgets")
    return interactive_shell


def test_the_line_magic_shows_a_catalogue_model_with_its_options(shell: InteractiveShell, planner: Any) -> None:
    explorer: Explorer = shell.run_line_magic("alpa", "gpt-tiny 1x2:a100 -B 4 --layers 2 --delta 0.2 --schedule gpipe")
    assert explorer.session.wait(LIMIT_SECONDS)
    s = explorer.settings
    assert (s.model, s.devices_per_node, s.device, s.num_microbatches) == ("gpt-tiny", 2, "a100-80gb", 4)
    assert (s.num_layers, s.delta, s.schedule) == (2, 0.2, "gpipe")
    assert planner.plans[0]["pipeline"] == {"schedule": "gpipe"}


@pytest.mark.parametrize(
    "line", ["--pin addmm=S0R --forbid mm=RR --forbid mm=S0R", "--forbid=mm=S0R --pin=addmm=S0R --forbid=mm=RR"]
)
def test_the_magics_hold_the_specs_that_are_pinned_and_forbidden(
    shell: InteractiveShell, planner: Any, line: str
) -> None:
    explorer: Explorer = shell.run_line_magic("alpa", f"gpt-tiny {line}")
    assert explorer.session.wait(LIMIT_SECONDS)
    assert planner.plans[0]["pin"] == {"addmm": "S0R"}
    assert planner.plans[0]["forbid"] == {"mm": ["RR", "S0R"]}


@pytest.mark.parametrize("line", ["--pin addmm", "--pin mm=much", "--pin mm=S0R --pin mm=RR", "--pin"])
def test_spec_constraints_of_a_magic_that_cannot_be_are_refused(shell: InteractiveShell, line: str) -> None:
    with pytest.raises(OptionError):
        shell.run_line_magic("alpa", f"gpt-tiny {line}")


def test_the_line_magic_opens_a_plan_file(shell: InteractiveShell, tmp_path: Path) -> None:
    example_plan().save(tmp_path / "a.plan.json")
    explorer: Explorer = shell.run_line_magic("alpa", f"'{tmp_path / 'a.plan.json'}'")
    assert explorer.plan == example_plan()


def test_the_cell_magic_captures_the_model_that_the_cell_makes(shell: InteractiveShell) -> None:
    shell.user_ns["model"] = "an older one"
    cell = (
        "import torch\nfrom torch import nn\nmodel = nn.Linear(4, 4)\n"
        "example_inputs = (torch.empty(6, 4), torch.empty(6, 4))\nloss = nn.functional.mse_loss\n"
    )
    explorer: Explorer = shell.run_cell_magic("alpa", "1x2:v100 -B 8", cell)
    assert explorer.session.wait(LIMIT_SECONDS)
    assert (explorer.settings.model, explorer.settings.microbatch) == ("Linear", 6)
    graph = explorer.session.sources.graph(explorer.settings)
    assert any(o.kind.startswith("aten.") for o in graph.forward_operators)


def test_a_cell_without_a_model_says_so_and_leaves_the_older_one(shell: InteractiveShell) -> None:
    shell.user_ns["model"] = "an older one"
    with pytest.raises(OptionError, match="made no model"):
        shell.run_cell_magic("alpa", "1x2:v100", "x = 1")
    assert shell.user_ns["model"] == "an older one"


@pytest.mark.parametrize("line", ["", "gpt-tiny --nonsense", "gpt-tiny -B many", "gpt-tiny 'open"])
def test_a_line_that_cannot_be_read_is_an_error_with_the_usage(line: str) -> None:
    with pytest.raises(OptionError):
        magics.parse(line, with_model=True)
