"""The graph of a stage: what its nodes and edges stand for, and that no time is lost or counted twice."""

from dataclasses import replace

import pytest

from alpa_explore.errors import OptionError
from alpa_explore.figures.dataflow.stage_dataflow import sentence_of, stage_dataflow
from alpa_explore.plans.plan import Plan
from tests.figures.dataflow.small_stage import plan_of, small_stage

STAGE = small_stage()
FLOW = stage_dataflow(plan_of(STAGE))


def node(name: str) -> str:
    return next(n.id for n in FLOW.nodes for o in (*n.operators, *n.equal) if o.name == name)


def test_equal_operators_of_equal_blocks_are_one_node_and_views_are_part_of_another() -> None:
    assert node("norm_0") == node("norm_2")
    assert node("norm_0") != node("mm_0")
    norm = next(n for n in FLOW.nodes if n.id == node("norm_0"))
    assert [v.name for v in norm.views] == ["view_0", "view_1", "view_2"]
    assert [n.label for n in FLOW.nodes if n.operator.phase == "update"] == ["update"]


def test_inside_equal_blocks_an_edge_is_drawn_once_and_between_them_it_has_all_its_reads() -> None:
    inside = [e for e in FLOW.edges if (e.source, e.target) == (node("mm_0"), node("add_0"))]
    assert [(e.next_block, len(e.reads)) for e in inside] == [(False, 1)]
    between = [e for e in FLOW.edges if (e.source, e.target) == (node("add_0"), node("norm_0"))]
    assert [(e.next_block, len(e.reads)) for e in between] == [(True, 2)]
    (weights,) = (e for e in FLOW.edges if e.target == node("mm_0") and not e.source)
    assert (weights.end, weights.kinds, weights.seconds) == ("weight", "all-gather", 2e-4)


def test_the_seconds_of_the_groups_are_those_of_the_stage() -> None:
    for phase in ("forward", "backward", "update"):
        own = [o for o in STAGE.operators if o.phase == phase]
        assert sum(g.seconds("compute_seconds")[phase] for g in FLOW.groups) == pytest.approx(
            sum(o.compute_seconds for o in own)
        )
        assert sum(g.seconds("communication_seconds")[phase] for g in FLOW.groups) == pytest.approx(
            sum(o.communication_seconds for o in own)
        )


def test_the_collectives_of_one_block_and_of_those_outside_are_on_the_edges() -> None:
    of_block = 2e-4 + 1e-4
    assert sum(edge.seconds for edge in FLOW.edges) == pytest.approx(of_block + 5e-4)


def test_only_updates_move_tensors_once_an_iteration() -> None:
    once = {read.tensor: read.collective.once for edge in FLOW.edges for read in edge.reads if read.collective}
    assert once == {"h.0.mlp.weight": False, "dw_0": True, "add_2": False}
    scattered = tuple(replace(o, stored_seconds=(1e-4, 0.0)) if o.phase == "update" else o for o in STAGE.operators)
    flow = stage_dataflow(plan_of(replace(STAGE, operators=scattered)))
    assert not any(read.collective.once for edge in flow.edges for read in edge.reads if read.collective)


def test_the_sentence_names_the_equal_blocks_and_the_longest_collective() -> None:
    said = sentence_of(stage_dataflow(plan_of(STAGE)))
    assert "27 operators in 5 blocks. 3 of them are equal (h.0 – h.2) and are drawn once." in said
    assert "The longest collective in a microbatch: all-reduce of add_2, 500 µs." in said


def test_without_names_of_tensors_edges_follow_the_order_of_execution_and_the_sentence_says_so() -> None:
    old = replace(STAGE, operators=tuple(replace(o, input_names=(), input_shapes=()) for o in STAGE.operators))
    flow = stage_dataflow(plan_of(old))
    assert not flow.wired
    assert flow.edges
    assert "edges follow the order" in sentence_of(stage_dataflow(plan_of(old)))


def test_a_stage_without_operators_says_what_to_do(plan: Plan) -> None:
    empty = plan_of(replace(STAGE, operators=(), tensors=()))
    assert stage_dataflow(empty).nodes == ()
    assert "plan again to see them" in sentence_of(stage_dataflow(empty))


def test_a_stage_that_the_plan_does_not_have_is_an_error(plan: Plan) -> None:
    with pytest.raises(OptionError, match="no such stage"):
        stage_dataflow(plan, 9)
