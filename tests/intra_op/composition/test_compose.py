"""Composition: every range has the cost that a separate solve finds, and a choice that attains it."""

import json
import random
from dataclasses import fields
from functools import cache
from itertools import combinations_with_replacement
from pathlib import Path

import pytest
import torch
from torch import nn

from alpa_explore.cluster import Cluster, Submesh, logical_mesh
from alpa_explore.cost.model import CostModel
from alpa_explore.graph import TrainingGraph
from alpa_explore.intra_op.composition import cut_blocks, tuning
from alpa_explore.intra_op.composition.block_subproblem import Price
from alpa_explore.intra_op.composition.chain import NO_BLOCK, Chain, chain_of
from alpa_explore.intra_op.composition.compose import Composer, whole_choice
from alpa_explore.intra_op.composition.cut_blocks import BlockCutter
from alpa_explore.intra_op.solve import solve
from alpa_explore.intra_op.stage.build_problem import build_stage_problem
from alpa_explore.intra_op.stage.layered_graph import assign_layers
from alpa_explore.intra_op.stage.stage_graph import slice_stages
from alpa_explore.intra_op.stage.stage_totals import StageTotals
from alpa_explore.layering import cluster_operators, manual_layers
from alpa_explore.planner.microbatch_graph import microbatch_graph
from alpa_explore.sharding.spec_constraint import constraints_of
from alpa_explore.tracing.capture import capture

MESHES = ((1, 2), (2, 2))


class Skips(nn.Module):
    """Five blocks, each of which reads the two before it where `far`, and all of which read a table made first."""

    def __init__(self, *, far: bool, table: bool) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(nn.Linear(64, 64) for _ in range(5))
        self.far, self.table = far, table
        self.register_buffer("mask", torch.ones(64, 64))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        before = x
        factor = torch.cos(x[:1]) if self.table else 1.0
        for block in self.blocks:
            new = torch.relu(block(x)) * factor + self.mask + (before if self.far else x)
            before, x = x, new
        return x.square().sum()


@cache
def skips(*, far: bool = False, table: bool = False) -> Chain:
    with torch.device("meta"):
        graph = capture(Skips(far=far, table=table), (torch.empty(64, 64),))
    return chain_of(assign_layers(graph, manual_layers(graph, [f"blocks.{i}" for i in range(1, 5)]).layer_of_forward))


class Adapted(nn.Module):
    """Four frozen weights with an adapter and a buffer each; all blocks read one more frozen weight."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks, self.downs, self.ups = (
            nn.ModuleList(nn.Linear(*sizes, bias=False) for _ in range(4)) for sizes in ((64, 64), (64, 8), (8, 64))
        )
        self.shared = nn.Linear(64, 64)
        for frozen in (self.blocks, self.shared):
            frozen.requires_grad_(False)
        for i in range(4):
            self.register_buffer(f"scale_{i}", torch.ones(32, 64))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for i, (block, down, up) in enumerate(zip(self.blocks, self.downs, self.ups, strict=True)):
            x = torch.relu(block(x) * getattr(self, f"scale_{i}") + up(down(self.shared(x))))
        return x.square().sum()


@cache
def adapted() -> Chain:
    with torch.device("meta"):
        graph = capture(Adapted(), (torch.empty(32, 64),))
    return chain_of(assign_layers(graph, manual_layers(graph, [f"blocks.{i}" for i in range(1, 4)]).layer_of_forward))


class Encoder(nn.Module):
    """torch's own attention: queries, keys and values are products with views of one weight, and the blocks are so cut
    that several read it."""

    def __init__(self) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.table, self.head = nn.Embedding(16, 16), nn.Linear(16, 4)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.head(self.layers(self.table(tokens)).mean(1)).square().sum()


@cache
def encoder() -> Chain:
    with torch.device("meta"):
        graph = capture(Encoder(), (torch.empty(4, 8, dtype=torch.int64),))
    return chain_of(assign_layers(graph, cluster_operators(graph, 2, delta=1.0).layer_of_forward))


@cache
def catalogue(name: str, layers: int) -> Chain:
    graph: TrainingGraph = microbatch_graph(name, 4)
    return chain_of(assign_layers(graph, cluster_operators(graph, layers, delta=2.0).layer_of_forward))


@cache
def forbidding(name: str, layers: int) -> Chain:
    """No matrix product of the forward pass may split its rows along all mesh axes."""
    graph: TrainingGraph = microbatch_graph(name, 4)
    spec_constraints = constraints_of(
        None, {o.name: ["S0R", "S01R"] for o in graph.forward_operators if "mm" in o.kind}
    )
    return chain_of(
        assign_layers(graph, cluster_operators(graph, layers, delta=2.0).layer_of_forward, None, spec_constraints)
    )


@cache
def cut_anywhere(name: str, seed: int) -> Chain:
    """Four layers that end at random operators: inside an MLP, between the branches of a skip."""
    graph: TrainingGraph = microbatch_graph(name, 4)
    places = sorted(random.Random(seed).sample(range(1, len(graph.forward_operators)), 3))
    return chain_of(assign_layers(graph, manual_layers(graph, places).layer_of_forward))


@cache
def inside_a_residual_block() -> Chain:
    """Layer 1 makes what the shortcut of a block reads in layer 3; layer 2 is the middle of that block."""
    graph: TrainingGraph = microbatch_graph("wide-resnet-tiny", 4)
    return chain_of(assign_layers(graph, manual_layers(graph, [15, 19, 24]).layer_of_forward))


def on(mesh: tuple[int, int]) -> CostModel:
    cluster = Cluster.parse("1x4:v100")
    return CostModel(cluster.device, logical_mesh(cluster, Submesh(1, mesh[0] * mesh[1]), mesh).squeezed())


CHAINS = {
    "gpt-tiny": lambda: catalogue("gpt-tiny", 4),
    "mlp": lambda: catalogue("mlp-tiny", 3),
    "mlp, specs forbidden": lambda: forbidding("mlp-tiny", 3),
    "wide-resnet-tiny": lambda: catalogue("wide-resnet-tiny", 4),
    "skips": skips,
    "a skip over a layer": lambda: skips(far=True),
    "a shared table": lambda: skips(table=True),
    "a layer inside a residual block": inside_a_residual_block,
    "torch's encoder": encoder,
    "frozen weights and buffers": adapted,
    **{
        f"{name}, cut anywhere {seed}": lambda name=name, seed=seed: cut_anywhere(name, seed)
        for name in ("gpt-tiny", "wide-resnet-tiny")
        for seed in range(2)
    },
}


@pytest.mark.slow
@pytest.mark.sweep(kept=3, in_turn=True)
@pytest.mark.parametrize(
    ("name", "mesh"), [(n, m) for n in CHAINS for m in MESHES if m == (1, 2) or "anywhere" not in n], ids=str
)
def test_every_range_costs_what_a_separate_solve_finds(name: str, mesh: tuple[int, int]) -> None:
    chain = CHAINS[name]()
    model = on(mesh)
    stage_of = slice_stages(chain.layered)
    ranges = list(combinations_with_replacement(range(chain.layered.num_layers), 2))
    composer = Composer(chain, stage_of, model)
    composed = 0
    prices = [Price(0.25, 0.0, 1), Price(1e-3, 0.0, 1), Price(0.25, 1e-10, 3)]
    for price, solutions in zip(prices, composer.solve(ranges, prices), strict=True):
        for r, best in solutions.items():
            assert best is not None
            problem = build_stage_problem(stage_of(*r), model)
            priced = problem.at(**price._asdict())
            choices = whole_choice(chain, problem, best.block_choices)
            constant = NO_BLOCK in chain.owners(problem)
            if price.memory_price == 0.0 or not constant:
                assert best.cost == pytest.approx(solve(priced).objective, rel=1e-9)
                assert priced.evaluate(choices) == pytest.approx(best.cost, rel=1e-9)
            totals = problem.totals(choices)
            for field in fields(StageTotals):
                assert getattr(best.totals, field.name) == pytest.approx(getattr(totals, field.name), rel=1e-9)
            least = [problem.memory_limit(h, 1.0).least_peak() for h in (1, 2, 3)]
            assert composer.least_peaks(*r, (1, 2, 3)) == pytest.approx(least, rel=1e-9)
            composed += 1
    if mesh == (1, 2) or name in ("mlp", "skips"):
        assert composed >= 3 * chain.layered.num_layers, "single layers at least; others may be too wide on two axes"


def test_ranges_with_too_wide_a_block_are_left_out_and_the_others_are_composed() -> None:
    chain = CHAINS["gpt-tiny"]()
    model = on((1, 2))
    stage_of = slice_stages(chain.layered)
    composer = Composer(chain, stage_of, model)
    tables = composer.tables([Price(0.25, 0.0, 1)])
    ranges = list(combinations_with_replacement(range(chain.layered.num_layers), 2))
    blocks = {r: composer.cutter.of_range(*r) for r in ranges}
    wide = blocks[1, 1][-2]
    tables.known[wide] = None
    composed = {r for r in ranges if wide not in blocks[r]}
    assert (0, 0) in composed
    assert (1, 1) not in composed
    (solutions,) = composer.solve(ranges, tables.prices, tables=tables)
    assert set(solutions) == composed
    for r, best in solutions.items():
        problem = build_stage_problem(stage_of(*r), model).at(**tables.prices[0]._asdict())
        assert best.cost == pytest.approx(solve(problem).objective, rel=1e-9)


def test_a_range_in_which_no_choice_is_legal_has_none_and_hinders_no_other() -> None:
    graph: TrainingGraph = microbatch_graph("mlp-tiny", 4)
    pinned = next(o.name for o in graph.forward_operators if "mm" in o.kind)
    layers = cluster_operators(graph, 2, delta=2.0).layer_of_forward
    chain = chain_of(assign_layers(graph, layers, None, constraints_of({pinned: "S1R"}, None)))
    composer = Composer(chain, slice_stages(chain.layered), on((1, 2)))  # a mesh without a second axis
    ranges = [(0, 0), (0, 1), (1, 1)]
    for solved in composer.solve(ranges, [Price(0.25, 0.0, 1), Price(0.5, 0.0, 1)]):
        assert [r for r in ranges if solved[r] is not None] == [(1, 1)]


@pytest.mark.slow
def test_where_a_layer_ends_inside_a_block_the_chain_is_still_cut_where_one_tensor_passes() -> None:
    graph: TrainingGraph = microbatch_graph("gpt-tiny", 4)
    inside = [i for i, operator in enumerate(graph.forward_operators) if "gelu" in operator.kind]
    assert len(inside) == 4, "one for each block of the model"
    chain = chain_of(assign_layers(graph, manual_layers(graph, inside).layer_of_forward))
    for layer in range(4):
        before, after = chain.parts(layer, layer)[-1], chain.parts(layer + 1, layer + 1)[0]
        assert before.block == after.block, "the block continues in the next layer"
        assert before.last + 1 == after.first
        assert (
            len(chain.parts(layer, layer + 1))
            == len(chain.parts(layer, layer)) + len(chain.parts(layer + 1, layer + 1)) - 1
        ), "and is one block in the range of both layers"


def test_a_residual_block_with_a_whole_layer_in_its_middle_is_one_block_and_breaks_nothing() -> None:
    chain = inside_a_residual_block()
    assert not chain.breaks
    before, within, after = (chain.parts(layer, layer) for layer in (1, 2, 3))
    assert [run.block for run in within] == [before[-1].block] == [after[0].block]
    (solutions,) = Composer(chain, slice_stages(chain.layered), on((1, 2))).solve([(0, 3)], [Price(0.25, 0.0, 1)])
    assert solutions[0, 3] is not None, "and its ranges are composed"


def test_a_chain_breaks_where_something_made_in_it_is_read_far_away() -> None:
    assert not skips().breaks
    far = skips(far=True)
    assert not far.is_chain(1, 3), "block 3 reads what block 1 made"
    assert far.is_chain(1, 2)
    table = skips(table=True)
    assert not table.is_chain(0, 2), "the table is made in layer 0 and read in layer 2"
    assert table.is_chain(1, 4), "in these layers it comes from outside"


def rotary(folder: Path) -> Chain:
    """A Llama of Hugging Face, which computes its rotary tables in its first layer."""
    pytest.importorskip("transformers", reason="pip install alpa-explore[hf]")
    config = folder / "config.json"
    sizes = {"hidden_size": 64, "intermediate_size": 128, "num_attention_heads": 4, "num_key_value_heads": 2}
    config.write_text(json.dumps({"model_type": "llama", "num_hidden_layers": 8, "vocab_size": 64, **sizes}))
    graph = microbatch_graph(str(config), 4)
    return chain_of(assign_layers(graph, cluster_operators(graph, 4, delta=1.0).layer_of_forward))


@pytest.mark.slow
def test_rotary_tables_neither_break_a_chain_nor_hinder_cuts_inside_layers(tmp_path: Path) -> None:
    chain = rotary(tmp_path)
    names = {chain.layered.graph.operators[o].name.split("_")[0] for o in chain.layered.tables}
    assert {"arange", "cos", "sin", "unsqueeze"} <= names
    assert not chain.breaks
    assert len(chain.parts(2, 2)) >= 4, "two blocks of attention and two MLPs"


@pytest.mark.slow
def test_ranges_with_the_layer_that_computes_rotary_tables_cost_what_a_separate_solve_finds(tmp_path: Path) -> None:
    chain, model, price = rotary(tmp_path), on((2, 2)), Price(0.25, 0.0, 1)
    stage_of = slice_stages(chain.layered)
    ranges = [(0, 0), (0, 2), (1, 2), (0, 3)]
    (solutions,) = Composer(chain, stage_of, model).solve(ranges, [price])
    for range_ in ranges:
        problem, best = build_stage_problem(stage_of(*range_), model), solutions[range_]
        assert best.cost == pytest.approx(solve(problem.at(**price._asdict())).objective, rel=1e-9)
        totals = problem.totals(whole_choice(chain, problem, best.block_choices))
        assert totals.device_latency_at(price.inverse_b) == pytest.approx(best.cost, rel=1e-9)


def test_a_weight_that_is_tied_breaks_the_chain_between_its_layers_alone() -> None:
    chain = catalogue("gpt-tiny", 4)
    assert [r for r in combinations_with_replacement(range(4), 2) if not chain.is_chain(*r)] == [(0, 3)]


def test_a_range_with_a_tied_weight_at_both_ends_is_composed(monkeypatch: pytest.MonkeyPatch) -> None:
    chain = catalogue("gpt-tiny", 4)
    composer = Composer(chain, slice_stages(chain.layered), on((1, 2)))
    (solutions,) = composer.solve([(0, 3)], [Price(0.25, 0.0, 1)])
    blocks = composer.cutter.of_range(0, 3)
    assert blocks is not None
    sharing = [i for i, block in enumerate(blocks) if block.shared]
    assert sharing[0] == 0
    assert len(sharing) <= 3, "the blocks between do not share the weight"
    assert solutions[0, 3] is not None
    monkeypatch.setattr(tuning, "SHARED_ENTRIES", 1)
    (solutions,) = composer.solve([(0, 2), (0, 3)], [Price(0.25, 0.0, 1)])
    assert list(solutions) == [(0, 2)], "tables of shared nodes that are too large are not made"


def test_a_skip_over_a_layer_is_not_composed(monkeypatch: pytest.MonkeyPatch) -> None:
    chain = skips(far=True)
    composer = Composer(chain, slice_stages(chain.layered), on((1, 2)))
    monkeypatch.setattr(cut_blocks, "build_stage_problem", None)  # its problem need not even be built
    assert composer.solve([(1, 3)], [Price(0.25, 0.0, 1)]) == ({},)


def test_a_mask_from_outside_belongs_to_no_layer() -> None:
    chain = skips()
    model = on((1, 2))
    stage = slice_stages(chain.layered)(0, 4)
    problem = build_stage_problem(stage, model)
    constants = [n.subject for n, k in zip(problem.nodes, chain.owners(problem), strict=True) if k == NO_BLOCK]
    assert [chain.layered.graph.tensors[t].name for t in constants] == ["mask"]


@pytest.mark.slow
@pytest.mark.parametrize("mesh", MESHES)
@pytest.mark.parametrize(("name", "num_layers"), [("gpt-tiny", 3), ("moe-tiny", 2), ("wide-resnet-tiny", 4)])
def test_a_block_cut_out_between_its_neighbours_equals_that_cut_out_of_the_whole_stage(
    name, num_layers, mesh, monkeypatch
):
    chain = catalogue(name, num_layers)
    layers = chain.layered.num_layers
    near = BlockCutter(chain=chain, model=on(mesh))
    of_range = {r: near.of_range(*r) for r in combinations_with_replacement(range(layers), 2)}
    assert sum(len(blocks) for blocks in of_range.values() if blocks) > layers
    cut = type(chain.stage_of).__call__
    monkeypatch.setattr(type(chain.stage_of), "__call__", lambda slicer, first, last, *_inner: cut(slicer, first, last))
    whole = BlockCutter(chain=chain, model=on(mesh))
    for r, blocks in of_range.items():
        others = whole.of_range(*r)
        assert (blocks is None) == (others is None)
        assert [b.content_key for b in blocks or ()] == [b.content_key for b in others or ()], r
