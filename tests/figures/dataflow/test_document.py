"""What the page gets: keys of the selection, specs taken apart, and texts of a stranger's plan that cannot hurt."""

import json

from alpa_explore.figures.dataflow.document import dataflow_document
from alpa_explore.figures.dataflow.stage_dataflow import stage_dataflow
from alpa_explore.figures.keys import agree, key
from alpa_explore.plans.plan import Plan
from tests.figures.dataflow.small_stage import plan_of, small_stage

DOCUMENT = dataflow_document(stage_dataflow(plan_of(small_stage())))


def test_every_operator_has_a_node_with_its_key() -> None:
    keys = {k for node in DOCUMENT["nodes"] for k in node["keys"]}
    assert keys == {key(layer=0, operator=o.name) for o in small_stage().operators}
    first = f"stage:0/{DOCUMENT['nodes'][0]['keys'][0]}"
    assert agree(first, "stage:0/layer:0")
    assert not agree(first, "stage:0/layer:1")


def test_specs_are_taken_apart_by_mesh_axis() -> None:
    assert DOCUMENT["sizes"] == [2, 2]
    assert DOCUMENT["specs"]["S0R"] == {"dims": [[0], []], "pending": []}
    assert DOCUMENT["specs"]["RR+P0"] == {"dims": [[], []], "pending": [0]}


def test_a_tile_says_what_a_device_holds_and_weights_are_told_from_other_inputs() -> None:
    tiles = next(node["tiles"] for node in DOCUMENT["nodes"] if node["text"][0] == "mm_0")
    assert [tile["role"] for tile in tiles] == ["input", "weight", "output"]
    assert tiles[0]["words"][-1] == "every device holds 4×4 of 8×4"


def test_an_edge_with_a_collective_is_labelled_and_ends_without_one_are_left_out() -> None:
    labels = {edge["label"] for edge in DOCUMENT["edges"] if edge["seconds"]}
    assert labels == {"all-gather 200 µs", "reduce-scatter 100 µs", "all-reduce 500 µs"}
    assert all(edge["seconds"] for edge in DOCUMENT["edges"] if not edge["a"] or not edge["b"])


def test_a_document_is_plain_json_and_no_larger_than_a_page_can_take(long_plan: Plan) -> None:
    text = json.dumps(dataflow_document(stage_dataflow(long_plan)), allow_nan=False)
    assert len(text) < 2_000_000


def test_texts_have_no_characters_that_a_screen_cannot_show(hostile_plan: Plan) -> None:
    document = dataflow_document(stage_dataflow(hostile_plan))
    texts = json.dumps(document, ensure_ascii=False)
    assert all(character.isprintable() for character in texts)
