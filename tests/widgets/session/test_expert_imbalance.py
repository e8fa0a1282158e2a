"""The slider of expert imbalance: the plan priced again, with its choices as they are."""

import pytest
from alpa_explore_widgets import explore

import alpa_explore as ax
from alpa_explore.questions.reprice import reprice
from tests.waiting import LIMIT_SECONDS
from tests.widgets.conftest import type_and_wait


@pytest.mark.slow
def test_the_plan_is_priced_again_at_once_beside_other_changes() -> None:
    balanced = ax.baseline("mixtral-tiny", "1x4:h100", "megatron", num_microbatches=2, num_layers=2, dp=4, ep=4)
    explorer = explore(balanced)
    explorer.controls.kept.value = "microbatch"
    slider = explorer.controls["expert_imbalance"]
    slider.value = 2.0
    assert explorer.wait(LIMIT_SECONDS)
    expected = reprice(balanced, balanced.cluster.with_changes(expert_imbalance=2.0))
    assert explorer.plan.predicted == expected.predicted
    assert expected.predicted.iteration_seconds > balanced.predicted.iteration_seconds
    assert "choices are those for 1;" in slider.note
    type_and_wait(explorer, num_microbatches=4)
    assert (explorer.plan.options.num_microbatches, explorer.plan.cluster.device.expert_imbalance) == (4, 2.0)
    slider.value = 1.0
    type_and_wait(explorer, num_microbatches=2)
    assert explorer.plan.predicted.iteration_seconds == pytest.approx(balanced.predicted.iteration_seconds)
    assert slider.note == ""


def test_it_is_hidden_for_a_model_without_experts() -> None:
    explorer = explore("mlp-tiny", cluster="1x2:cpu", num_layers=2)
    slider = explorer.controls["expert_imbalance"]
    assert slider.layout.display == "none"
    explorer.controls["model"].value = "mixtral-tiny"
    assert slider.layout.display == ""
    assert explorer.wait(LIMIT_SECONDS)
