"""The Sharding tab shows a stage as a graph or as a matrix, and shares its selection with the other tabs."""

from collections.abc import Iterator

import pytest
from alpa_explore_widgets import explore
from alpa_explore_widgets.elements.figures import DataflowGraph
from alpa_explore_widgets.elements.page_widget import STATIC
from alpa_explore_widgets.explorer import Explorer
from alpa_explore_widgets.tabs.of_plan import ShardingPanel

from tests.plans.example import example_plan


@pytest.fixture
def explorer() -> Iterator[Explorer]:
    shown = explore(example_plan())
    shown.tabs.selected = shown.panels.index(panel_of(shown))
    yield shown
    shown.close()


def panel_of(explorer: Explorer) -> ShardingPanel:
    return next(p for p in explorer.panels if isinstance(p, ShardingPanel))


def hidden(widget) -> bool:
    return widget.layout.display == "none"


def test_it_opens_as_a_graph_of_the_stage(explorer: Explorer) -> None:
    panel = panel_of(explorer)
    assert (hidden(panel.graph), hidden(panel.figure), hidden(panel.table)) == (False, True, True)
    assert panel.graph.document["stage"] == 0
    assert panel.graph.label.startswith("Sharding of gpt-example on 2x4:v100 as a graph. Stage 0: ")
    assert "operators in " in panel.finding.value


def test_the_matrix_and_the_table_take_its_place(explorer: Explorer) -> None:
    panel = panel_of(explorer)
    panel.view.value = "matrix"
    assert (hidden(panel.graph), hidden(panel.figure)) == (True, False)
    assert '"specs"' in panel.figure.figure_json
    explorer.toolbar_pressed("table", {}, [])
    assert (hidden(panel.graph), hidden(panel.figure), hidden(panel.table)) == (True, True, False)
    explorer.toolbar_pressed("table", {}, [])
    panel.view.value = "graph"
    assert (hidden(panel.graph), hidden(panel.figure), hidden(panel.table)) == (False, True, True)


def test_an_operator_of_the_graph_is_the_selection_of_all_tabs(explorer: Explorer) -> None:
    panel = panel_of(explorer)
    node = next(n for n in panel.graph.document["nodes"] if n["phase"] == "forward")
    panel.graph.selection = f"stage:0/{node['keys'][0]}"
    assert explorer.session.store.state.selection == panel.graph.selection
    assert explorer.bridge.selection == panel.graph.selection
    panel.graph.selection = ""
    assert explorer.session.store.state.selection == ""


def test_a_selection_of_another_stage_shows_its_graph(explorer: Explorer) -> None:
    explorer.session.select("stage:2")
    panel = panel_of(explorer)
    assert panel.graph.document["stage"] == 2
    assert panel.graph.selection == "stage:2"


def test_a_change_that_leaves_the_stage_alone_sends_no_graph(explorer: Explorer) -> None:
    panel = panel_of(explorer)
    sent: list[object] = []
    panel.graph.observe(sent.append, "packed")
    explorer.bridge.theme = "dark"  # another colour
    before = len(sent)
    panel.redraw()
    assert len(sent) == before


def test_dagre_is_shipped_with_its_licence_and_version() -> None:
    notice = (STATIC / "dagre.NOTICE").read_text()
    assert "@dagrejs/dagre 3.1.3" in notice
    assert "Permission is hereby granted, free of charge" in notice
    assert "sourceMappingURL" not in (STATIC / "dagre.min.js").read_text()
    assert "var dagre=" in DataflowGraph.module
