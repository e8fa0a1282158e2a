"""Who reads what from whom: views are passed through, and every collective is on the edge of its tensor."""

from dataclasses import replace

import pytest

from alpa_explore.figures.dataflow.wiring import ENTERS, LEAVES, WEIGHT, stage_reads, views_of, writer_name
from tests.figures.dataflow.small_stage import moving, operator, small_stage, view


def test_a_view_is_passed_through_and_belongs_to_its_writer() -> None:
    stage = small_stage()
    read = next(r for r in stage_reads(stage) if r.target == "mm_0" and r.tensor == "view_0")
    assert read.source == "norm_0"
    assert [v.name for v in views_of(stage)["norm_0"]] == ["view_0"]


def test_a_view_of_a_weight_belongs_to_its_first_reader() -> None:
    stage = replace(
        small_stage(), operators=(view("t", "h.0.mlp.weight"), operator("mm", ("x", "t")), operator("other", ("t",)))
    )
    assert {name: [v.name for v in views] for name, views in views_of(stage).items()} == {"mm": ["t"]}
    assert next(r for r in stage_reads(stage) if r.tensor == "t").end == WEIGHT


def test_what_no_operator_writes_enters_or_is_a_stored_weight() -> None:
    ends = {(r.target, r.tensor): r.end for r in stage_reads(small_stage()) if not r.source}
    assert ends["embedding", "tokens"] == ENTERS
    assert ends["embedding", "embedding.weight"] == ends["mm_2", "h.2.mlp.weight"] == WEIGHT


def test_collectives_are_on_the_edges_of_their_tensors_and_all_are_there() -> None:
    stage = small_stage()
    reads = stage_reads(stage)
    moved = {(r.source or r.tensor, r.target): r.collective.kinds for r in reads if r.collective is not None}
    assert moved["h.1.mlp.weight", "mm_1"] == "all-gather"
    assert moved["dw_1", "update_h.1.mlp.weight"] == "reduce-scatter"
    assert moved["add_2", "loss"] == "all-reduce"
    total = sum(r.collective.seconds for r in reads if r.collective is not None)
    assert total == pytest.approx(sum(o.communication_seconds for o in stage.operators))


def test_a_collective_on_what_an_operator_writes_leads_out_of_the_stage() -> None:
    stage = replace(small_stage(), operators=(operator("last", ("x",), **moving("last", "all-reduce")),))
    assert [(r.source, r.target, r.end) for r in stage_reads(stage)] == [("", "last", ENTERS), ("last", "", LEAVES)]


def test_in_an_older_file_all_collectives_of_an_operator_are_on_its_first_input() -> None:
    old = replace(
        operator("mm", ("a", "b"), **moving("b")), collective_tensors=(), collective_kinds=(), collective_seconds=()
    )
    first, second = stage_reads(replace(small_stage(), operators=(old,)))
    assert (first.collective.kinds, first.collective.seconds) == ("collectives", 2e-4)
    assert second.collective is None


def test_the_writer_of_one_of_several_outputs_is_found() -> None:
    names = {"split": operator("split", ("x",)), "h.1.conv.2": operator("h.1.conv.2", ("x",))}
    assert writer_name("split.1", names) == "split"
    assert writer_name("h.1.conv.2", names) == "h.1.conv.2"
    assert writer_name("h.1.weight", names) == writer_name("other.1", names) == ""
