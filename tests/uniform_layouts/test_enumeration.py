"""Every uniform layout: the same as by brute force, and what each software has."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from alpa_explore.baselines.block_work import CapturedBlocks
from alpa_explore.baselines.layout import Layout
from alpa_explore.cluster import Cluster
from alpa_explore.uniform_layouts import tuning
from alpa_explore.uniform_layouts.enumeration import enumerate_layouts, leanest
from alpa_explore.uniform_layouts.structure import Structure


def structure(layers: int, heads: int, hidden: int, ffn: int, tokens: int, experts: int = 1) -> Structure:
    return Structure(
        layers=layers,
        hidden=hidden,
        heads=heads,
        kv_heads=8,
        ffn=ffn,
        vocabulary=32000,
        kinds=(0,) * layers,
        captured=CapturedBlocks.of_period(1),
        widths=(heads, hidden, ffn),
        tokens=tokens,
        positions=tokens,
        experts=experts,
        flops=1e15,
        spelled_out=False,
        is_chain=True,
        divides_sequences=True,
    )


MODELS = {
    "llama-3-8b": structure(32, 32, 4096, 14336, 8192),
    "llama-3.2-1b": structure(16, 32, 2048, 8192, 8192),
    "mixtral-8x7b": structure(32, 32, 4096, 14336, 4096, experts=8),
}


def by_brute_force(name: str, cluster: Cluster, batch: int) -> set[Layout]:
    """All combinations of numbers up to the number of devices, and those of them that the rules allow."""
    of, numbers = MODELS[name], range(1, cluster.devices + 1)
    length = of.tokens
    found = set()
    for tp, pp, dp, cp, ep in itertools.product(numbers, numbers, numbers, numbers, numbers):
        if tp * pp * dp * cp != cluster.devices or batch % dp or pp > of.layers or tp > cluster.devices_per_node:
            continue
        if any(size % tp for size in (*of.widths, length)):
            continue
        if cp > 1 and (length % cp or length // cp < tuning.LEAST_POSITIONS or (length // cp) % (2 * tp)):
            continue
        etp = tp if of.experts > 1 else 1
        for mbs, chunks in itertools.product((1, 2, 4, 8, 16, 32), range(1, tuning.MOST_CHUNKS + 1)):
            if (of.experts == 1 and ep > 1) or of.experts % ep or dp % ep:
                continue
            if (batch // dp) % mbs or (mbs > 1 and (cp > 1 or mbs * length > tuning.MOST_TOKENS)):
                continue
            count = batch // dp // mbs
            if pp > 1 and count < pp:
                continue
            if chunks > 1:
                parts = pp * chunks
                even = of.layers % parts == 0 or (of.layers + 2) % parts == 0
                if pp == 1 or count % pp or parts > of.layers or not even:
                    continue
            for zero, kept in itertools.product((0, 1, 2, 3), ("none", "full")):
                if (zero and dp * cp == 1) or (zero > 1 and pp > 1):
                    continue
                found.add(
                    Layout(
                        tensor=tp,
                        pipeline=pp,
                        data=dp,
                        context=cp,
                        expert=ep,
                        expert_tensor=etp,
                        microbatch=mbs,
                        microbatches=count,
                        chunks=chunks,
                        zero_stage=zero,
                        recompute=kept,
                    )
                )
    return found


@pytest.mark.parametrize(
    ("model", "cluster", "batch"),
    [("llama-3-8b", "1x8:h100", 16), ("llama-3.2-1b", "2x6:h100", 20), ("mixtral-8x7b", "2x4:h100", 16)],
)
def test_all_layouts_are_enumerated_once(model: str, cluster: str, batch: int) -> None:
    on = Cluster.parse(cluster)
    found = enumerate_layouts(MODELS[model], on, batch)
    assert len(found) == len(set(found))
    assert set(found) == by_brute_force(model, on, batch)
    assert all(layout.devices == on.devices for layout in found)


def test_a_software_has_only_what_it_can_run() -> None:
    model = MODELS["llama-3-8b"]

    def of(software: str) -> tuple[Layout, ...]:
        return enumerate_layouts(model, Cluster.parse("1x8:h100", software=software), 128)

    assert {(one.tensor, one.pipeline, one.zero_stage) for one in of("fsdp")} == {(1, 1, 2), (1, 1, 3)}
    assert {one.chunks for one in of("nanotron")} == {1}
    assert {one.chunks for one in of("megatron")} > {1}
    assert {one.context for one in of("megatron-v2")} == {1}


def test_selective_recomputation_is_offered_where_scores_are_stored() -> None:
    cluster = Cluster.parse("1x8:h100")
    llama = MODELS["llama-3-8b"]
    kept = [
        {one.recompute for one in enumerate_layouts(replace(llama, spelled_out=stored), cluster, 64)}
        for stored in (True, False)
    ]
    assert kept == [{"none", "selective", "full"}, {"none", "full"}]


def test_what_a_model_cannot_divide_is_not_offered() -> None:
    cluster, llama = Cluster.parse("1x8:h100"), MODELS["llama-3-8b"]

    def offered(axis: str, of: Structure) -> set[int]:
        return {getattr(one, axis) for one in enumerate_layouts(of, cluster, 64)}

    long = replace(llama, tokens=32768)
    assert offered("tensor", llama) == {1, 2, 4, 8}
    assert offered("tensor", replace(llama, widths=(*llama.widths, 6))) == {1, 2}
    assert offered("context", long) == {1, 2, 4, 8}
    assert offered("context", replace(long, divides_sequences=False)) == {1}
    assert offered("context", replace(llama, tokens=1)) == {1}, "an image"
    assert offered("expert", llama) == {1}
    assert offered("pipeline", replace(llama, layers=3)) == {1, 2}
    assert offered("pipeline", replace(llama, is_chain=False)) == {1}


def test_the_leanest_layouts_store_least_of_their_degrees() -> None:
    found = enumerate_layouts(MODELS["llama-3-8b"], Cluster.parse("1x8:h100"), 16)
    lean = leanest(found)
    assert {one.recompute for one in lean} == {"full"}
    assert {one.microbatch for one in lean} == {1}
    assert {(one.tensor, one.pipeline, one.context) for one in lean} == {
        (one.tensor, one.pipeline, one.context) for one in found if one.microbatch == 1
    }
    assert all(one.zero_stage == 3 for one in lean if one.pipeline == 1 and one.data * one.context > 1)


def test_a_layout_is_named_in_the_words_of_the_field() -> None:
    layout = Layout(tensor=2, pipeline=4, data=8, microbatch=2, microbatches=16, zero_stage=1, recompute="selective")
    assert layout.words == "TP 2 · PP 4 · DP 8 · ZeRO-1 · microbatch 2 · selective recomputation"
    assert layout.devices == 64
    assert "EP 8 · expert TP 2" in Layout(tensor=2, data=8, expert=8, expert_tensor=2).words
