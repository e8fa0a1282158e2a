"""The layers figure: labels that have no room beside one another."""

from itertools import pairwise

from alpa_explore.figures.decisions.layers import layers_figure
from tests.plans.example import example_plan


def test_bytes_of_cuts_that_are_near_one_another_stand_at_two_heights() -> None:
    for num_layers in (4, 9):
        plan = example_plan("1x4:v100", num_layers=num_layers)
        (texts,) = [t for t in layers_figure(plan).data if t.name == "cuts" and t.mode == "text"]
        whole = sum(len(layer.operator_cut_bytes) for layer in plan.layers)
        near = [b - a < 0.12 * whole for a, b in pairwise(texts.x)]
        assert any(near) is (num_layers == 9)
        assert all(a != b for (a, b), close in zip(pairwise(texts.y), near, strict=True) if close)
        assert len(set(texts.y)) == 1 + (num_layers == 9)
