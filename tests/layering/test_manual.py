"""Boundaries set by hand."""

import pytest

from alpa_explore.errors import LayeringError
from alpa_explore.layering import manual_layers


@pytest.fixture
def graph(make_graph):
    modules = ["tokens", "", "m.h.0.attention", "m.h.0.mlp", "m.h.1.attention", "m.h.1.mlp", "m.h.10.mlp", "n.h.10"]
    return make_graph([(module, 1, place + 1, (place - 1,)) for place, module in enumerate(modules)])


@pytest.mark.parametrize(
    ("boundaries", "cuts"),
    [
        ([], ()),
        ([3, 5], (3, 5)),
        ([0, 3], (3,)),
        (["3", "op5"], (3, 5)),
        (["m.h.0", "m.h.1"], (2, 4)),
        (["m.h.1"], (4,)),
        (["h.0", "h.1", "m.h.10"], (2, 4, 6)),
        (["m.h.0.mlp", 4, "op6"], (3, 4, 6)),
        (["tokens", "m"], (2,)),
    ],
)
def test_a_layer_begins_at_each_boundary(graph, boundaries, cuts):
    layering = manual_layers(graph, boundaries)
    assert layering.cuts == cuts
    assert len(layering.layer_of_forward) == len(graph.forward_operators)
    assert sum(layer.flops for layer in layering.layers) == 8
    # A chain: a layer's cut is the output of its last operator, place + 1 float32 elements.
    assert [layer.cut_bytes for layer in layering.layers] == [4 * cut for cut in cuts] + [0]
    assert layering.objective_bytes == max((4 * cut for cut in cuts), default=0)


@pytest.mark.parametrize(
    ("boundaries", "words"),
    [
        (["h.2"], "no forward operator and no module is called 'h.2'"),
        (["h.10"], "'h.10' could be 'm.h.10' or 'n.h.10'.*whole path"),
        (["m.h.1", "m.h.0"], r"'m.h.0' \(operator 2\) does not come after 'm.h.1' \(operator 4\)"),
        ([2, "m.h.0"], "does not come after 2"),
        ([8], "position 8 in a graph of 8.*from 0 to 7"),
        ([-1], "position -1"),
        (["99"], "position 99"),
        (["back1"], "no forward operator"),
    ],
)
def test_invalid_boundaries_are_named(graph, boundaries, words):
    with pytest.raises(LayeringError, match=words):
        manual_layers(graph, boundaries)
