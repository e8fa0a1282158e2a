"""Operators are grouped by block of the model, and equal blocks that follow one another are one group."""

from dataclasses import replace

import pytest

from alpa_explore.figures.dataflow.stage_dataflow import OUTSIDE, block_name, part_of_block, stage_blocks
from tests.figures.dataflow.small_stage import small_stage


@pytest.mark.parametrize(
    ("module", "block", "part"),
    [
        ("h.3.attention.qkv", "h.3", "attention"),
        ("h.3", "h.3", ""),
        ("stages.0.2.conv", "stages.0.2", "conv"),
        ("layers.4.moe.experts.7.up", "layers.4", "moe"),
        ("embedding.tokens", "embedding", "tokens"),
        ("", OUTSIDE, ""),
    ],
)
def test_a_block_is_named_by_the_module_up_to_its_number(module: str, block: str, part: str) -> None:
    assert (block_name(module), part_of_block(module)) == (block, part)


def test_equal_blocks_are_one_group_in_the_order_of_the_forward_pass() -> None:
    blocks = stage_blocks(small_stage())
    assert [(block.label, block.count) for block in blocks] == [("embedding", 1), ("h.0 – h.2", 3), ("head", 1)]
    assert [o.name for o in blocks[1].operators] == [
        *("norm_0", "view_0", "mm_0", "add_0", "dx_0", "dw_0", "dnorm_0", "update_h.0.mlp.weight")
    ]
    assert all(a.op == b.op for member in blocks[1].members for a, b in zip(blocks[1].operators, member, strict=True))


def test_a_block_with_another_spec_is_a_group_of_its_own() -> None:
    stage = small_stage()
    other = tuple(replace(o, outputs=("RR",)) if o.name == "add_1" else o for o in stage.operators)
    assert [b.label for b in stage_blocks(replace(stage, operators=other))] == [
        *("embedding", "h.0", "h.1", "h.2", "head")
    ]


def test_every_operator_is_in_exactly_one_block() -> None:
    stage = small_stage(5)
    names = [o.name for block in stage_blocks(stage) for member in block.members for o in member]
    assert sorted(names) == sorted(o.name for o in stage.operators)


def test_what_is_computed_between_blocks_belongs_to_the_block_before_unless_there_is_but_one_such_place() -> None:
    stage = small_stage()

    def outside(*names: str) -> list[str]:
        operators = tuple(replace(o, module="") if o.name in names else o for o in stage.operators)
        found = stage_blocks(replace(stage, operators=operators))
        assert sorted(o.name for block in found for member in block.members for o in member) == sorted(
            o.name for o in stage.operators
        )
        return [block.label for block in found]

    adds = [o.name for o in stage.operators if o.name.startswith("add_")]
    assert outside(*adds, *(o.name for o in stage.operators if o.name.startswith("dx_"))) == [
        *("embedding", "h.0 – h.2", "head")
    ]
    assert OUTSIDE in outside(adds[0])
