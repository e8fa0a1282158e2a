"""Keys of marks: a key is read back as written, agreement is symmetric, and a selection outlives a change of plan."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from alpa_explore.figures.decisions.cluster import cluster_figure
from alpa_explore.figures.decisions.layers import layers_figure
from alpa_explore.figures.decisions.sharding import sharding_figure
from alpa_explore.figures.keys import LINK, agree, key, link, read_key, valid_key
from alpa_explore.plans.plan import Plan
from tests.plans.example import example_plan

PARTS = st.fixed_dictionaries(
    {}, optional={"stage": st.integers(0, 3), "layer": st.integers(0, 5), "operator": st.text(min_size=1)}
)


@pytest.mark.slow
@given(PARTS)
def test_a_key_is_read_back_as_it_was_written(parts: dict[str, int | str]) -> None:
    assert read_key(key(**parts)) == {kind: str(value) for kind, value in parts.items()}


@given(PARTS)
def test_a_link_names_what_it_selects_and_is_no_key(parts: dict[str, int | str]) -> None:
    assert link(**parts).removeprefix(LINK) == key(**parts)
    assert "stage" not in read_key(link(**parts))


@given(PARTS, PARTS)
def test_keys_agree_exactly_where_no_kind_has_two_values(a: dict[str, object], b: dict[str, object]) -> None:
    expected = all(a[kind] == b[kind] for kind in a.keys() & b.keys())
    assert agree(key(**a), key(**b)) is agree(key(**b), key(**a)) is expected


def test_a_selection_keeps_what_another_plan_contains() -> None:
    plan = example_plan()
    last = plan.stages[-1]
    layer = last.layers[1]
    assert valid_key(plan, key(stage=99, layer=layer)) == key(stage=last.index, layer=layer), "a layer brings its stage"
    assert valid_key(plan, key(stage=0, device=last.devices[0])) == key(stage=last.index, device=last.devices[0])
    assert valid_key(plan, key(stage=99)) == valid_key(plan, "stage:x") == valid_key(plan, "nonsense") == ""


def test_a_selected_layer_highlights_its_operators_its_stage_and_its_devices_and_no_others(plan: Plan) -> None:
    stage = plan.stages[2]
    selection = valid_key(plan, key(layer=stage.layers[0]))
    strip = [
        k for trace in layers_figure(plan).data for k in (trace.customdata if trace.customdata is not None else ())
    ]
    highlighted = {k for k in strip if agree(selection, k)}
    names = {read_key(k).get("operator") for k in highlighted} - {None}
    assert names == set(plan.layers[stage.layers[0]].operators)
    assert key(stage=2) in highlighted
    devices = [
        k for trace in cluster_figure(plan).data for k in (trace.customdata if trace.customdata is not None else ())
    ]
    highlighted = {k for k in devices if k and agree(selection, k)}
    assert {int(read_key(k)["device"]) for k in highlighted if "device" in read_key(k)} == set(stage.devices)
    assert key(stage=2) in highlighted, "the ground of its devices"
    rows = sharding_figure(plan, 2, start=0, count=500).data[0].customdata
    highlighted_rows = [row[0] for row in rows if agree(selection, row[0])]
    assert 0 < len(highlighted_rows) < len(rows)
