"""Every uniform layout: the same as by brute force, and what each software has."""

from __future__ import annotations

import itertools

import pytest

from alpa_explore.cluster import Cluster
from alpa_explore.uniform_layouts import tuning
from alpa_explore.uniform_layouts.enumeration import divisors, enumerate_layouts, leanest
from alpa_explore.uniform_layouts.layout import UniformLayout
from alpa_explore.uniform_layouts.models import layout_model


def by_brute_force(name: str, cluster: Cluster, batch: int) -> set[UniformLayout]:
    """All combinations of numbers up to the number of devices, and those of them that the rules allow."""
    model = layout_model(name)
    of, length, numbers = model.architecture, model.sequence, range(1, cluster.devices + 1)
    found = set()
    for tp, pp, dp, cp, ep in itertools.product(numbers, numbers, numbers, numbers, numbers):
        if tp * pp * dp * cp != cluster.devices or batch % dp or pp > of.layers or tp > cluster.devices_per_node:
            continue
        if any(size % tp for size in (of.heads, of.ffn, of.hidden, length)):
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
                    UniformLayout(
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
    found = enumerate_layouts(layout_model(model), on, batch)
    assert len(found) == len(set(found))
    assert set(found) == by_brute_force(model, on, batch)
    assert all(layout.devices == on.devices for layout in found)


def test_a_software_has_only_what_it_can_run() -> None:
    model = layout_model("llama-3-8b")

    def of(software: str) -> tuple[UniformLayout, ...]:
        return enumerate_layouts(model, Cluster.parse("1x8:h100", software=software), 128)

    assert {(one.tensor, one.pipeline, one.zero_stage) for one in of("fsdp")} == {(1, 1, 2), (1, 1, 3)}
    assert {one.chunks for one in of("nanotron")} == {1}
    assert {one.chunks for one in of("megatron")} > {1}
    assert {one.context for one in of("megatron-v2")} == {1}


def test_selective_recomputation_is_offered_where_scores_are_stored() -> None:
    cluster = Cluster.parse("1x8:h100")
    kept = {name: {one.recompute for one in enumerate_layouts(layout_model(name), cluster, 64)} for name in MODELS}
    assert kept == {"gpt-1.3b": {"none", "selective", "full"}, "llama-3-8b": {"none", "full"}}


MODELS = ("gpt-1.3b", "llama-3-8b")


def test_the_leanest_layouts_store_least_of_their_degrees() -> None:
    found = enumerate_layouts(layout_model("llama-3-8b"), Cluster.parse("1x8:h100"), 16)
    lean = leanest(found)
    assert {one.recompute for one in lean} == {"full"}
    assert {one.microbatch for one in lean} == {1}
    assert {(one.tensor, one.pipeline, one.context) for one in lean} == {
        (one.tensor, one.pipeline, one.context) for one in found if one.microbatch == 1
    }
    assert all(one.zero_stage == 3 for one in lean if one.pipeline == 1 and one.data * one.context > 1)


def test_divisors_are_ascending_and_each_is_there_once() -> None:
    assert divisors(36) == (1, 2, 3, 4, 6, 9, 12, 18, 36)
    assert divisors(1) == (1,)


def test_a_layout_is_named_in_the_words_of_the_field() -> None:
    layout = UniformLayout(
        tensor=2, pipeline=4, data=8, microbatch=2, microbatches=16, zero_stage=1, recompute="selective"
    )
    assert layout.words == "TP 2 · PP 4 · DP 8 · CP 1 · microbatch 2 · ZeRO-1 · selective recomputation"
    assert layout.devices == 64
    assert "EP 8 · expert TP 2" in UniformLayout(tensor=2, data=8, expert=8, expert_tensor=2).words
