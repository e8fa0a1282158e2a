"""What a user hands over in the wrong form is told as an error with a remedy, where it is handed over."""

from dataclasses import replace

import numpy as np
import pytest

import alpa_explore as ax
from alpa_explore.errors import AlpaExploreError, ClusterError, OptionError


@pytest.mark.parametrize(
    ("field", "wrong"),
    [
        *(("cuts", wrong) for wrong in (3, "48", (1.5,), None, (True,))),
        *((field, wrong) for field in ("num_stages", "stages_per_submesh") for wrong in ("2", 2.0, True, (2,))),
        *(("stage_submeshes", wrong) for wrong in (3, (0, 1, 2), ((0, 1),), (("a", 1, 2),), None)),
        *((field, wrong) for field in ("paper", "communication", "tied_weights") for wrong in ("yes", 2, np.zeros(2))),
        *((field, wrong) for field in ("schedule", "submesh_space") for wrong in (None, 3, ["1f1b"])),
        *(("imbalance_tolerance", wrong) for wrong in ("0.5", True, (1,))),
    ],
)
def test_a_pipeline_option_of_the_wrong_type_is_named_with_what_it_must_be(field, wrong):
    with pytest.raises(OptionError, match=f"pipeline option {field} must be .*Give ") as caught:
        ax.PipelineOptions(**{field: wrong})
    assert caught.value.found == repr(wrong)


def test_lists_and_the_numbers_of_numpy_are_what_python_has_for_them():
    plain = ax.PipelineOptions(
        cuts=(1, 2), num_stages=3, stage_submeshes=((0, 1, 2),), imbalance_tolerance=0.5, communication=False
    )
    given = ax.PipelineOptions(
        cuts=np.array([1, 2]),
        num_stages=np.int64(3),
        stage_submeshes=[[0, 1, np.int32(2)]],
        imbalance_tolerance=np.float32(0.5),
        communication=np.bool_(False),
    )
    assert given == plain
    assert repr(given) == repr(plain), "a numpy number has another text, and keys are made of texts"
    cluster = ax.Cluster.parse("1x2:v100", memory_bytes=np.int64(2**30))
    assert type(cluster.device.memory_bytes) is int
    assert type(replace(cluster, nodes=np.int64(2)).nodes) is int


@pytest.mark.parametrize(
    ("option", "wrong", "advice"),
    [
        ("pipeline", {"cuts": (1,)}, "PipelineOptions"),
        ("pipeline", "gpipe", "PipelineOptions"),
        ("boundaries", "fc", "a list of names"),
        ("boundaries", 3, "a list of names"),
        ("pin", "addmm", "pin="),
        ("pin", {"addmm": 3}, "pin="),
        ("pin", {3: "S0R"}, "pin="),
        ("pin", {"addmm": ["S0R"]}, "pin="),
        ("forbid", ["addmm"], "forbid="),
        ("forbid", {"addmm": 3}, "forbid="),
        ("forbid", {"addmm": ["S0R", 3]}, "forbid="),
        ("solver", 3, "Known"),
        ("delta", True, "0.5"),
        ("num_layers", True, "whole number"),
    ],
)
def test_an_option_of_the_planner_of_the_wrong_type_is_an_option_error(option, wrong, advice):
    with pytest.raises(OptionError, match=advice):
        ax.plan("mlp-tiny", "1x2:v100", **{"num_microbatches": 4, "scheduler": "serial", "cache": False, option: wrong})


@pytest.mark.parametrize(
    "changes",
    [
        {"memory_bytes": "32 GB"},
        {"memory_bytes": None},
        {"launch_seconds": float("nan")},
        {"peak_flops": 3},
        {"peak_flops": {"float16": 1e12}},
        {"peak_flops": {"float32": "x"}},
        {"collective_overlap": "all"},
        {"memory": 3},
        {"nodes": "2"},
        {"nodes": 1.5},
        {"devices_per_node": None},
        {"device": "a100"},
        {"inside_node": 3e11},
    ],
)
def test_a_field_of_a_cluster_or_its_device_that_cannot_be_is_a_cluster_error(changes):
    with pytest.raises(ClusterError):
        ax.Cluster.parse("1x2:v100", **changes)


def test_a_link_has_numbers():
    cluster = ax.Cluster.parse("1x2:v100")
    with pytest.raises(AlpaExploreError, match="bandwidth='fast'"):
        replace(cluster.inside_node, bandwidth="fast")
