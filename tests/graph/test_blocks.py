"""The numbered blocks of a model, and what of them is exchanged at once."""

import pytest

from alpa_explore.graph import TrainingGraph
from alpa_explore.graph.blocks import block_numbers, block_starts, exchanged_elements
from alpa_explore.planner.microbatch_graph import microbatch_graph


def graph_of(name: str) -> TrainingGraph:
    return microbatch_graph(name, 1, global_batch=2)


@pytest.mark.parametrize("name", ["gpt-tiny", "mixtral-tiny"])
def test_weights_of_a_block_are_exchanged_at_once_those_of_experts_apart(name: str) -> None:
    graph = graph_of(name)
    numbers = {n for n in block_numbers(graph) if n is not None}
    assert len(block_starts(graph)) == len(numbers) > 1
    together = exchanged_elements(graph)
    inside = [
        (graph.tensors[p.tensor].elements, together[place])
        for place, p in enumerate(graph.parameters)
        if ".0." in p.name
    ]
    assert len({at_once for _, at_once in inside}) == (2 if name == "mixtral-tiny" else 1)
    # What is exchanged at once is a block, in one or two exchanges.
    assert sum({at_once for _, at_once in inside}) == sum(own for own, _ in inside)


def test_a_model_without_numbered_blocks_has_nothing_to_exchange_at_once() -> None:
    assert exchanged_elements(graph_of("mlp-tiny")) == {}
