"""A guess of a layout: its price, its rank, what does not fit or does not exist, and the league."""

from dataclasses import replace
from pathlib import Path

import pytest

from alpa_explore.course import guess, league, student, students
from alpa_explore.course.guessing import priced_layouts

MODEL, CLUSTER, BATCH = "llama-tiny", "1x4:h100", 4


@pytest.mark.slow
def test_a_guess_has_a_price_a_rank_and_what_would_have_been_best() -> None:
    asked = priced_layouts(MODEL, CLUSTER, BATCH, None, None)
    best, worst = asked.fitting[0], asked.fitting[-1]

    def of(priced) -> str:
        layout = priced.layout
        card = guess(
            MODEL,
            CLUSTER,
            tp=layout.tensor,
            pp=layout.pipeline,
            dp=layout.data,
            cp=layout.context,
            ep=layout.expert,
            microbatch=layout.microbatch,
            zero=layout.zero_stage,
            recompute=layout.recompute,
            global_batch=BATCH,
        )
        return str(card)

    assert f"Rank: 1 of {len(asked.fitting):,} layouts that fit" in of(best)
    assert "the best" in of(best)
    assert "slower" not in of(best)
    assert f"The best: {best.words}" in of(worst)
    assert "✗" in of(worst)


@pytest.mark.slow
def test_what_a_guess_leaves_open_is_what_is_fastest() -> None:
    asked = priced_layouts(MODEL, CLUSTER, BATCH, None, None)
    fastest = asked.where({"tensor": 2, "pipeline": 1, "data": 2, "context": 1, "expert": 1})[0]
    assert guess(MODEL, CLUSTER, tp=2, global_batch=BATCH).title.startswith(fastest.words)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"tp": 3, "dp": 1}, "3 · 1 · 1 · 1 = 3, but 1x4:h100 has 4 devices"),
        ({"tp": 3}, "has 4 devices"),
        ({"tp": "two"}, "tp = 'two'"),
        ({"pp": 0}, "pp = 0"),
        ({"dp": 2.0, "tp": 2}, "dp = 2.0"),
        ({"tp": True}, "tp = True"),
        ({"tp": 2, "microbatch": 7}, "microbatch can be"),
        ({"global_batch": 0}, "global batch"),
        ({"global_batch": 7, "dp": 4}, "With tp = 1, pp can be"),
        ({"precision": "fp32"}, "16 bits"),
    ],
)
def test_what_is_no_layout_gets_a_hint_and_no_place_in_the_league(options: dict, expected: str) -> None:
    card = guess(MODEL, CLUSTER, **({"global_batch": BATCH} | options))
    assert card.look == "hint"
    assert expected in str(card)
    assert students.current().guesses == []


@pytest.mark.parametrize(("model", "cluster"), [("lama-tiny", CLUSTER), (MODEL, "1x4:h1000"), (MODEL, "four")])
def test_an_unknown_model_or_cluster_gets_a_hint(model: str, cluster: str) -> None:
    assert guess(model, cluster, tp=2, global_batch=BATCH).look == "hint"


def test_a_layout_that_does_not_fit_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = priced_layouts(MODEL, CLUSTER, BATCH, None, None)
    lost = replace(asked.where({"tensor": 4})[0], reason="stage 0 needs more", missing_bytes=1.0)
    best = next(priced for priced in asked.ranked if priced.layout.tensor != 4)
    monkeypatch.setattr("alpa_explore.course.guessing.priced_layouts", lambda *_: replace(asked, ranked=(best, lost)))
    card = guess(MODEL, CLUSTER, tp=4, global_batch=BATCH)
    assert "does not fit" in card.title
    assert "stage 0 needs more" in card.text
    assert best.words in card.text
    assert students.current().guesses == []


def test_the_league_has_the_guesses_of_all_whose_progress_is_in_the_folder(course_folder: Path) -> None:
    assert "empty" in league().title
    student("anna")
    guess(MODEL, CLUSTER, tp=4, global_batch=BATCH)
    guess(MODEL, CLUSTER, tp=4, global_batch=BATCH)
    student("ben")
    guess(MODEL, CLUSTER, dp=4, global_batch=BATCH)
    (course_folder / "broken.json").write_text("{")
    (course_folder / "other.json").write_text('{"format": 1, "name": "eve", "guesses": [{"problem": "x"}, 3]}')
    text = league().text
    assert text.count("anna") == 1
    assert text.count("ben") == 1
    assert "eve" not in text
    assert "the best uniform layout" in text
    assert league("gpt-tiny").title == "The league is empty"


def test_replicas_that_are_not_named_fill_the_devices() -> None:
    assert "devices" not in str(guess(MODEL, CLUSTER, tp=1, pp=2, cp=2, global_batch=BATCH)).partition("place")[0]
    assert "1 · 2 · 2 · 2 = 8" in str(guess(MODEL, CLUSTER, tp=1, pp=2, dp=2, cp=2, global_batch=BATCH))
