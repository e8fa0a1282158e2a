"""A program under the interpreter equals the sequential graph: loss, every gradient, every updated parameter.

Random plans of many models are tested like this in tests/random_plans/test_today.py. Here is what those do not reach.
"""

import pytest
import torch

from alpa_explore.baselines.roles import Role
from alpa_explore.programs.check import check
from alpa_explore.programs.execution.execute import cut
from alpa_explore.programs.execution.rehearsal import live_bytes
from alpa_explore.programs.program import Compute, Send
from alpa_explore.schedules.task import Action
from alpa_explore.sharding.rules.attention import CONTEXT
from tests.programs.cases import Case, at_random, dividing, following, optimal
from tests.programs.transforms import divided

MODELS = ["mlp-tiny", "gpt-tiny", "fused-attention", "moe-tiny", "wide-resnet-tiny"]
PIPELINES = {
    "1+1": [((0, 1), ()), ((2, 3), ())],
    "2+2": [((0, 1), (2,)), ((2, 3), (2,))],
    "1+2+1": [((0, 0), ()), ((1, 2), (2,)), ((3, 3), ())],
    "1+1+2+4": [((0, 0), ()), ((1, 1), ()), ((2, 2), (2,)), ((3, 3), (2, 2))],
    "4+2": [((0, 2), (2, 2)), ((3, 3), (2,))],
}
"""Layers and logical mesh of each stage."""


def along(*kinds):
    """What each mesh axis does, of as many as the mesh of a stage has."""
    return lambda problem: divided(problem, kinds[: len(problem.model.mesh.shape)])


ROUTED = ["tokens", "experts", "inner", "exchange", "tokens experts", "experts tokens", "experts inner"]
ROUTED += ["inner tokens", "experts experts", "tokens exchange", "exchange tokens", "exchange inner"]
BESIDE = following(Role.CONTEXT, Role.TENSOR_SEQUENCE)
WAYS = [("data",), ("zero",), ("tensor",), ("data", "tensor"), ("zero", "tensor"), ("data", "zero")]
UNLIKE = [((0, 0), ()), ((1, 2), (2,)), ((3, 3), ())]
MORE = [((0, 0), (2,)), ((1, 1), ()), ((2, 2), (2, 2)), ((3, 3), ())]
CASES = [
    # A random plan has none of the solver's choices, and no more microbatches than 6.
    *(((model, {"num_microbatches": 8}), PIPELINES["1+1+2+4"], optimal) for model in MODELS[:3]),
    *(
        (("routed-experts", {"num_microbatches": 2}), [((0, 3), (4,) if " " not in way else (2, 2))], way)
        for way in ROUTED
    ),
    (("routed-experts", {"num_microbatches": 2}), PIPELINES["2+2"], optimal),
    *((("mlp-tiny", {"optimizer": name}), [((0, 3), (2, 2))], 1) for name in ("adam", "adamw", "sgd", "sgd_momentum")),
    # Else their copies differ in the last bits, which the interpreter refuses.
    (("three-times", {"num_layers": 3}), [((k, k), ()) for k in range(3)], 0),
    *(
        ((model, {"samples": 1, "num_microbatches": 2, "context": context, "parts": parts}), [((0, 3), (2, 2))], BESIDE)
        for model, context, parts in (("with-sinks", "ring", 1), ("tied llama of 1", "ring-zigzag", 2))
    ),
    *(
        ((model, {"samples": 2, "context": "ring-zigzag ulysses", "parts": 2}), [((0, 3), (2, 2))], seed)
        for seed, model in enumerate(("tied llama of 1", "with-sinks", "with-sinks"))
    ),
    *((("with-sinks", {"samples": 2, "context": " ".join(sorted(CONTEXT))}), [((0, 3), (2, 2))], n) for n in range(2)),
]
"""A model and its options, stages, and how their strategies are chosen: by a function, at random, or by factors."""
SWEPT = [
    *(
        (
            (model, {"num_microbatches": 1 + cuts}),
            [[((0, 3), mesh)], [((0, 1), mesh), ((2, 3), mesh)]][cuts],
            along(*way),
        )
        for model in ("mlp-tiny", "gpt-tiny", "moe-tiny", "wide-resnet-tiny")
        for way in WAYS
        for cuts in (0, 1)
        for mesh in [(2,) * len(way)]
    ),
    *(
        ((model, {"num_microbatches": count}), stages, along(*way))
        for model in ("gpt-tiny", "moe-tiny", "wide-resnet-tiny", "llama-tiny")
        for stages, way, count in (
            (UNLIKE, ("data",), 1),
            (UNLIKE, ("zero",), 3),
            (UNLIKE, ("tensor",), 5),
            (MORE, ("zero", "tensor"), 8),
        )
    ),
    *(
        ((model, {"num_microbatches": 2}), stages, choose)
        for model in ("recurrent-lstm", "recurrent-gru", "recurrent-rnn", "linear-scans", "scans")
        for stages in (PIPELINES["1+2+1"], [((0, 3), (2, 2))])
        for choose in (optimal, 0, 1)
    ),
    *(((model, {"num_microbatches": 8}), PIPELINES["1+1+2+4"], optimal) for model in MODELS[3:]),
]


def check_equal(model, options, stages, choose):
    if isinstance(choose, str):
        choose = dividing(*choose.split())
    case = Case(model, **options)
    program = case.program(stages, at_random(choose) if isinstance(choose, int) else choose)
    check(program)
    case.assert_equal(program)


@pytest.mark.parametrize(("model", "stages", "choose"), CASES, ids=lambda value: None)
def test_a_program_equals_the_whole(model, stages, choose) -> None:
    check_equal(*model, stages, choose)


@pytest.mark.sweep(kept=9, in_turn=True)
@pytest.mark.slow
@pytest.mark.parametrize(("model", "stages", "choose"), SWEPT, ids=lambda value: None)
def test_every_way_to_divide_every_model_equals_the_whole(model, stages, choose) -> None:
    check_equal(*model, stages, choose)


def test_interleaved_stages_on_the_same_ranks_give_the_same() -> None:
    case = Case("gpt-tiny", num_microbatches=4)
    stages = [((k, k), (2,)) for k in range(4)]
    program = case.program(stages, optimal, "interleaved-1f1b", turns=2)
    assert program.ranks == (0, 1, 2, 3)
    check(program)
    case.assert_equal(program)


@pytest.mark.sweep(kept=1, in_turn=True)
@pytest.mark.slow
@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("rematerialization", [False, True])
def test_a_backward_pass_in_two_halves_gives_the_same(model, rematerialization) -> None:
    case = Case(model, num_microbatches=3, rematerialization=rematerialization)
    program = case.program(PIPELINES["1+2+1"], optimal, "zb-h1")
    check(program)
    case.assert_equal(program)
    middle = program.stages[1].tasks
    works = [any(isinstance(i, Compute) for i in middle[a][1]) for a in list(middle)[1:3]]
    # The backward pass of a convolution is one operator: all of it is awaited.
    assert works == [True, model != "wide-resnet-tiny"]
    assert not any(isinstance(i, Send) for i in middle[Action.BACKWARD_WEIGHT][1])


@pytest.mark.parametrize(("model", "submeshes"), [("tied-embedding", 1), ("three-times", 2)])
@pytest.mark.parametrize("mesh", [(), (2,)])
def test_interleaved_stages_of_one_submesh_may_share_a_weight(model, submeshes, mesh) -> None:
    case = Case(model, num_microbatches=4, num_layers=4)
    ends = (1, 3) if submeshes == 1 else (0, 1, 2, 3)
    stages = [((first, last), mesh) for first, last in zip((0, *(e + 1 for e in ends)), ends, strict=False)]
    program = case.program(stages, optimal, "interleaved-1f1b", turns=2)
    actions = {task.action for task in program.order(0)}
    assert {Action.SEND_GRADIENTS, Action.UPDATE, Action.RECEIVE_WEIGHTS} <= actions
    check(program)
    made = case.assert_equal(program)
    assert set(live_bytes(program)) == set(made.peak_bytes)
    assert {rank: one.peak_bytes for rank, one in live_bytes(program).items()} == made.peak_bytes


@pytest.mark.slow
@pytest.mark.parametrize("model", ["gpt-tiny", "moe-tiny"])
def test_what_is_not_held_is_computed_again_and_gives_the_same(model) -> None:
    held, again = (Case(model, num_microbatches=2, rematerialization=r) for r in (False, True))
    assert again.layered.recomputed
    stages = PIPELINES["2+2"]
    most = [case.assert_equal(case.program(stages, optimal)).most_values for case in (held, again)]
    assert most[1] < 0.8 * most[0]


@pytest.mark.sweep(kept=1, in_turn=True)
@pytest.mark.slow
@pytest.mark.parametrize("schedule", ["1f1b", "zb-h1"])
def test_each_stage_computes_again_what_its_own_layers_do_not_hold_and_gives_the_same(schedule) -> None:
    case = Case("gpt-tiny", num_microbatches=2)
    versions = [((), ()), ((0,), (2, 3)), ((1,), ()), ((0, 1), (3,)), ((0, 1), (2, 3))]
    most = []
    for one, other in versions:
        program = case.program([((0, 1), (2,), one), ((2, 3), (2,), other)], optimal, schedule)
        check(program)
        most.append(case.assert_equal(program).most_values)
    assert most[0] > max(most[1:]) or schedule == "zb-h1"


@pytest.mark.slow
@pytest.mark.sweep(kept=1, in_turn=True)
@pytest.mark.parametrize("kind", ["norms", "attention", "mlp", "norms+attention", "half", "full"])
@pytest.mark.parametrize("model", ["gpt-tiny", "llama-tiny"])
def test_blocks_and_their_parts_are_computed_again_and_give_the_same(model, kind) -> None:
    """Two layers of two blocks on devices that split every operator; the stages recompute different things."""
    case = Case(model, num_microbatches=2, num_layers=2)
    most = {}
    for one in (kind, "none"):
        program = case.program([((0, 0), (2,), one), ((1, 1), (2,), one)], optimal)
        check(program)
        most[one] = case.assert_equal(program).most_values
    assert most[kind] < most["none"]
    case.assert_equal(case.program([((0, 1), (2, 2), kind)], at_random(3), "zb-h1"))


def test_gpipe_holds_more_values_than_1f1b() -> None:
    case = Case("mlp-tiny", num_microbatches=8)
    one, all_ = (case.assert_equal(case.program(PIPELINES["1+1"], optimal, s)) for s in ("1f1b", "gpipe"))
    assert one.most_values < all_.most_values


def test_a_program_does_not_grow_with_microbatches() -> None:
    counts = {Case("mlp-tiny", num_microbatches=b).program(PIPELINES["2+2"], optimal).instruction_count for b in (1, 8)}
    assert len(counts) == 1


def test_a_box_of_a_transposed_weight_lies_in_memory_as_a_checkpoint_has_it() -> None:
    whole = torch.arange(24.0).reshape(4, 6).t()
    box = cut(whole, ((0, 6), (1, 4)))
    assert box.is_contiguous()
    assert torch.equal(box, whole[:, 1:4])
