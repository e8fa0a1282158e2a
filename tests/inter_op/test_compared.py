"""Which schedules are compared where none is named: those that the software runs, in every form that exists."""

from dataclasses import replace

import pytest

from alpa_explore.cluster import Cluster
from alpa_explore.cluster.software_profiles import load_software, software_names
from alpa_explore.inter_op.options import AUTO, PipelineOptions, compared
from alpa_explore.inter_op.schedule_terms import SCHEDULES


def names(cluster: str, layers: int = 16, b: int = 32, **options: object) -> list[tuple[str, int]]:
    """(schedule, stages on a submesh) of those that are compared."""
    found = compared(PipelineOptions(**options), Cluster.parse(cluster), layers, b)  # type: ignore[arg-type]  # given by name
    return [(each.schedule, each.terms(b).turns) for each in found]


INTERLEAVED = [("interleaved-1f1b", v) for v in (2, 4, 8)]


def test_those_that_the_software_runs_are_compared() -> None:
    assert names("2x8:h100") == [("1f1b", 1), *INTERLEAVED]
    assert names("2x8:h100@torchtitan") == [("1f1b", 1), *INTERLEAVED, ("zb-v", 2), ("dualpipe-v", 2)]
    assert names("2x8:h100@nanotron") == [("1f1b", 1)]


@pytest.mark.parametrize("cluster", ["2x8:a100@alpa", "1x8:v100", "2x8:h100@alpa", "1x8:h100+1x8:a100"])
def test_the_papers_setting_and_unlike_nodes_have_1f1b_alone(cluster: str) -> None:
    assert names(cluster) == [("1f1b", 1)]


def test_the_papers_mode_has_1f1b_alone() -> None:
    assert names("2x8:h100", paper=True) == [("1f1b", 1)]


def test_a_schedule_that_is_named_stands_alone() -> None:
    asked = PipelineOptions(schedule="zb-h1", num_stages=4)
    assert compared(asked, Cluster.parse("2x8:h100"), 16, 32) == (asked,)


def test_turns_are_those_that_divide_the_layers_and_whose_stages_divide_the_microbatches() -> None:
    assert names("2x8:h100", num_stages=4) == [("1f1b", 1), ("interleaved-1f1b", 2), ("interleaved-1f1b", 4)]
    assert names("2x8:h100", b=7) == [("1f1b", 1)]  # no pipeline of 2 to 8 stages but of 7, which do not divide 16
    assert names("2x8:h100", layers=12, b=3) == [("1f1b", 1), ("interleaved-1f1b", 2), ("interleaved-1f1b", 4)]
    assert names("1x1:h100") == [("1f1b", 1)]


def test_every_option_is_kept_and_1f1b_comes_first() -> None:
    asked = PipelineOptions(num_stages=2, cuts=(8,))
    for each in compared(asked, Cluster.parse("2x8:h100@torchtitan"), 16, 32):
        assert replace(each, schedule=AUTO, stages_per_submesh=asked.stages_per_submesh) == asked


@pytest.mark.parametrize("software", software_names())
def test_profiles_name_schedules_that_there_are(software: str) -> None:
    named = load_software(software).schedules.split()
    assert set(named) <= set(SCHEDULES)
    # Those without pipelines, and the paper's setting, name none.
    without = {"alpa", "compiled", "deepspeed", "eager", "fsdp"}
    assert named[:1] == ([] if software in without else ["1f1b"])
