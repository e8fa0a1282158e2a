"""What lessons say in prose, computed again: each sentence is made from its source, and must stand in its lesson.

A claim (`claims`) is (lesson, sentence, source). The source computes the numbers of the sentence from the catalogue,
the presets of devices, the cost model's functions, the simulator or the record of measured runs; a number that moves
there makes this test fail, and the sentence is then to be written again. Numbers that a lesson's own code asserts are
not repeated.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import cache
from itertools import permutations

import pytest
import torch

from alpa_explore.course.lessons.notebook import course_folder, read_lessons
from alpa_explore.graph import Tensor, TensorKind
from alpa_explore.models.catalog import entry
from alpa_explore.sharding.rules.factors import from_factors
from alpa_explore.sharding.spec import PARTIAL, REPLICATE
from tests.notebooks.claims import CLAIMS
from tests.notebooks.claims_page import PAGE, page_text, said


@cache
def prose() -> dict[str, str]:
    """The text of each lesson, on one line."""
    lessons = read_lessons(course_folder())
    texts = {x.number: " ".join(c.source for c in x.cells if c.kind == "markdown") for x in lessons}
    return {number: re.sub(r"\s+", " ", text) for number, text in texts.items()}


@pytest.mark.parametrize(("lesson", "sentence", "source"), CLAIMS, ids=[f"{c[0]}-{c[1][:40]}" for c in CLAIMS])
def test_a_sentence_says_what_its_source_computes(
    lesson: str, sentence: str, source: Callable[[], Sequence[object]]
) -> None:
    assert said(sentence, source) in prose()[lesson], said(sentence, source)


def test_sixty_sentences_are_computed_again() -> None:
    assert len(CLAIMS) >= 60
    assert {lesson for lesson, _, _ in CLAIMS} >= {f"{n:02}" for n in range(14)} | {"15", "16", "17", "18"}


def test_the_page_of_claims_has_them_all_with_their_sources() -> None:
    page = course_folder() / PAGE
    assert page.read_text(encoding="utf-8") == page_text(), "python -m tests.notebooks.claims_page writes it"
    assert page_text().count(" | `") == len(CLAIMS)


def fits_without_sharing(stages: Sequence[int], nodes: int, devices: int) -> bool:
    """Whether stages of fewer devices than a node can be placed so that none has devices of two nodes."""
    for order in set(permutations(stages)):
        left = [devices] * nodes
        for stage in order:
            place = next((node for node in range(nodes) if left[node] >= stage), None)
            if place is None:
                break
            left[place] -= stage
        else:
            return True
    return False


def test_stages_of_three_devices_leave_holes_and_powers_of_two_do_not_as_lesson_02_says() -> None:
    assert "stages of 3, 3 and 2 devices" in prose()["02"]
    assert not fits_without_sharing((3, 3, 2), 2, 4)
    powers = [(4, 4), (4, 2, 2), (4, 2, 1, 1), (2, 2, 2, 2), (2, 2, 2, 1, 1), (1,) * 8, (4, 1, 1, 1, 1)]
    assert all(fits_without_sharing(stages, 2, 4) for stages in powers)


def test_the_sizes_of_models_are_those_of_their_published_configs() -> None:
    """config.json of mistralai/Mixtral-8x7B-v0.1 and openai/gpt-oss-20b, as copies on huggingface.co have them."""
    published = {
        "mixtral-8x7b": (32, 4096, 32, 8, 14336, 8, 2, 32_000),
        "gpt-oss-20b": (24, 2880, 64, 8, 2880, 32, 4, 201_088),
    }
    for name, expected in published.items():
        own = entry(name).config
        sizes = (
            own.layers,
            own.hidden,
            own.heads,
            own.kv_heads,
            own.experts.ffn,
            own.experts.count,
            own.experts.chosen,
        )
        assert (*sizes, own.vocabulary) == expected, name


def test_the_rules_that_lesson_14_reads_have_the_factors_that_it_names() -> None:
    def tensor(*shape: int) -> Tensor:
        return Tensor(index=0, name="t", shape=shape, dtype="float32", kind=TensorKind.VALUE, producer=None)

    m, n, k = 4, 8, 6
    rules = {
        "mk,kn->mn": ([tensor(m, k), tensor(k, n)], tensor(m, n), {"m": False, "k": True, "n": False}),
        "mn,n->mn": ([tensor(m, n), tensor(n)], tensor(m, n), {"m": False, "n": False}),
        "mn->n": ([tensor(m, n)], tensor(n), {"m": True, "n": False}),
        "mn->nm": ([tensor(m, n)], tensor(n, m), {"m": False, "n": False}),
        "bs.->bs.": ([tensor(2, m, n)], tensor(2, m, n), {"b": False, "s": False}),
    }
    for rule, (inputs, output, pending) in rules.items():
        assert f"`{rule}`" in prose()["14"]
        splits = from_factors(rule, inputs, [output])
        assert {split.factor: split.outputs == (PARTIAL,) for split in splits} == pending, rule
    rows, _ = from_factors("mn,n->mn", rules["mn,n->mn"][0], [tensor(m, n)])
    assert rows.inputs[1] == REPLICATE, "the bias stays whole"


def test_common_operators_are_divided_along_the_dims_that_lesson_14_names() -> None:
    torch.manual_seed(0)
    x = torch.randn(4, 6, 8, dtype=torch.float64)

    def free(f: Callable[[torch.Tensor], torch.Tensor], x: torch.Tensor) -> list[int]:
        return [d for d in range(x.dim()) if torch.allclose(torch.cat([f(h) for h in x.chunk(2, d)], d), f(x))]

    assert free(lambda t: torch.softmax(t, 1), x) == [0, 2]
    assert free(lambda t: t.cumsum(1), x) == [0, 2]
    assert free(lambda t: (t - t.mean(2, keepdim=True)) / t.std(2, keepdim=True), x) == [0, 1]
    kernel = torch.randn(4, 4, 3, 3, dtype=torch.float64)
    image = torch.randn(2, 4, 8, 8, dtype=torch.float64)

    def conv(t: torch.Tensor) -> torch.Tensor:
        return torch.conv2d(t, kernel, padding=1)

    assert torch.allclose(torch.cat([conv(h) for h in image.chunk(2, 0)], 0), conv(image))
    assert not torch.allclose(torch.cat([conv(h) for h in image.chunk(2, 2)], 2), conv(image))
    halves = sum(torch.conv2d(i, k, padding=1) for i, k in zip(image.chunk(2, 1), kernel.chunk(2, 1), strict=True))
    assert torch.allclose(halves, conv(image)), "input channels leave a sum"
