"""Teaching mode: every tab has a lesson, its formulas hold for the plan on screen, and tabs follow the algorithm."""

import re
from dataclasses import replace

import pytest
from alpa_explore_widgets.explorer import Explorer
from alpa_explore_widgets.lessons import LESSONS, layouts_numbers, lesson_html, lesson_text, next_tab, scaling_numbers

from alpa_explore.baselines.layout import Layout
from alpa_explore.cluster import Cluster
from alpa_explore.planner.replan import replan
from alpa_explore.plans.plan import Plan
from alpa_explore.uniform_layouts.ranking import Layouts, PricedLayout
from alpa_explore.uniform_layouts.scaling import Scaling, ScalingPoint
from tests.plans.example import example_plan
from tests.widgets.conftest import plan_and_wait, type_and_wait

_SCALES = {
    "s": 1.0,
    "ms": 1e-3,
    "µs": 1e-6,
    "TiB": 2.0**40,
    "GiB": 2.0**30,
    "MiB": 2.0**20,
    "KiB": 2.0**10,
    "B": 1.0,
    "PFLOP": 1e15,
    "TFLOP": 1e12,
    "GFLOP": 1e9,
    "MFLOP": 1e6,
    "kFLOP": 1e3,
    "TFLOP/s": 1e12,
    "GFLOP/s": 1e9,
    "%": 0.01,
}
_FIGURE = re.compile(r"([0-9][0-9,.]*(?:e[+-]?[0-9]+)?)(?: ([A-Za-zµ%/]+))?")
_HINT = re.compile(r"\([a-z](?:[^()]|\([^()]*\))*\)")
_WORDS = re.compile(
    r" (of computation|of collectives|per microbatch|is allowed|to receive its inputs|per second( of a device)?)"
)
GIB = 2.0**30


def layouts_beside(plan: Plan, seconds: float) -> Layouts:
    """One layout for the model and cluster of the plan."""
    return Layouts(
        model=plan.model.name,
        cluster=plan.cluster,
        global_batch=plan.global_batch,
        sequence=plan.model.tokens // plan.model.samples,
        precision="float16",
        ranked=(priced(Layout(tensor=2, data=4, microbatch=2, microbatches=4), seconds=seconds),),
    )


def priced(layout: Layout, *, seconds: float = 1.0, rate: float = 1e4, missing: float = 0.0) -> PricedLayout:
    return PricedLayout(
        layout=layout,
        seconds=seconds,
        bytes=GIB,
        reason="needs more" if missing else "",
        missing_bytes=missing,
        tokens_per_second=rate,
        mfu=0.4,
        once_seconds=0.0,
        parts_bytes=(),
        blocks=(),
    )


SCALING = Scaling(
    model="gpt-example",
    global_batch=256,
    sequence=1024,
    precision="float16",
    points=(
        ScalingPoint(
            cluster=Cluster.parse("1x8:h100"), state="does not fit", nearest=priced(Layout(), missing=3 * GIB)
        ),
        ScalingPoint(cluster=Cluster.parse("2x8:h100"), state="priced", best=priced(Layout(), rate=5e4)),
        ScalingPoint(cluster=Cluster.parse("8x8:h100"), state="priced", best=priced(Layout(), rate=1.7e5)),
    ),
)
PLANS = [example_plan(), example_plan("1x1:a100"), replan(example_plan(), num_microbatches=3)]


def value(text: str) -> float:
    """The value of a sum whose numbers have units, such as '1 ms + 2 · 3 µs'; words in brackets are remarks."""
    text = _HINT.sub("", text).replace("·", "*").replace("×", "*").replace("−", "-")

    def number(match: re.Match[str]) -> str:
        scale = _SCALES.get(match[2] or "", 1.0)
        more = "" if match[2] in _SCALES or not match[2] else f" {match[2]}"
        return f"{float(match[1].replace(',', '')) * scale!r}{more}"

    made: float = eval(_FIGURE.sub(number, text), {})
    return made


def equation(numbers: str) -> tuple[str, str]:
    """The two sides of the first '=' between numbers."""
    parts = re.split(r"[;:] |, of |\. |\.$", numbers)
    *_, left, right = (_WORDS.sub("", side) for side in next(part for part in parts if " = " in part).split(" = "))
    return left, right


@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.parametrize(
    "title",
    [
        *("Overview", "Fit & scale", "Layouts", "Layers", "Cluster", "Sharding", "Costs", "t_max", "Memory"),
        *("Microbatches", "Why", "Search", "Compare"),
    ],
)
def test_the_formula_of_a_lesson_holds_for_the_numbers_that_are_put_in(title: str, plan: Plan) -> None:
    for stage in plan.stages:
        left, right = equation(lesson_text(title, "numbers", plan, stage))
        assert value(left) == pytest.approx(value(right), rel=0.03, abs=0.02), (left, right)


@pytest.mark.parametrize("title", LESSONS)
def test_a_lesson_is_about_this_plan(title: str) -> None:
    first, other = example_plan(), replan(example_plan("1x4:v100", num_layers=4), num_microbatches=8)
    texts = [lesson_html(title, plan, len(plan.stages) - 1) for plan in (first, other)]
    assert texts[0] != texts[1]
    assert all("None" not in text and "nan" not in text for text in texts)


def test_numbers_of_layouts_and_clusters_are_those_that_are_shown() -> None:
    plan = example_plan("1x8:h100")
    layouts = layouts_beside(plan, seconds=0.8 * plan.predicted.iteration_seconds)
    left, right = equation(layouts_numbers(plan, layouts))
    assert value(left) == pytest.approx(value(right), abs=0.005)
    assert right.startswith("−"), "the best uniform layout is faster than this plan"
    assert "Priced here: " in lesson_html("Layouts", plan, 0, layouts=layouts)
    assert layouts_numbers(plan, replace(layouts, model="another")) == ""
    assert "This plan: " in lesson_html("Layouts", plan, 0, layouts=replace(layouts, global_batch=3))

    left, right = equation(scaling_numbers(plan, SCALING))
    assert value(left) == pytest.approx(value(right), rel=0.01)
    assert "on 1x8:h100 a device lacks 3 GiB" in lesson_html("Fit & scale", plan, 0, scaling=SCALING)
    assert scaling_numbers(plan, replace(SCALING, points=SCALING.points[:2])) == "", "one is no comparison"


def test_every_lesson_has_a_tab_and_the_next_ones_lead_through_all_of_them(explorer: Explorer) -> None:
    assert {panel.title for panel in explorer.panels} >= set(LESSONS)
    walked = [next(iter(LESSONS))]
    while len(walked) < len(LESSONS):
        walked.append(next_tab(walked[-1]))
    assert walked == list(LESSONS)
    assert next_tab(walked[-1]) == walked[0]


def test_teaching_orders_the_tabs_explains_the_one_that_is_seen_and_goes_off_again(explorer: Explorer) -> None:
    plan_and_wait(explorer.session)
    usual = [title for title, *_ in explorer.tabs.tabs]
    explorer.tabs.selected = usual.index("Costs")
    assert explorer.lesson.widget.layout.display == "none"

    explorer.toolbar_pressed("teach", {}, [])
    titles = [title for title, *_ in explorer.tabs.tabs]
    assert titles == [p.title for p in explorer.panels]
    assert titles[: len(LESSONS)] == list(LESSONS), "in the order of the lessons, before those without one"
    assert explorer.panels[explorer.tabs.selected].title == "Costs"
    assert "teach" in explorer.toolbar.widget.pressed
    before = explorer.lesson.text.value
    assert "Step 7 of 16: Costs" in before
    type_and_wait(explorer, num_microbatches=16)
    assert "/ 16" in explorer.lesson.text.value != before
    assert "layers 2–3" in explorer.lesson.text.value, "the slowest stage"
    explorer.session.select("stage:0")
    assert "layers 0–1" in explorer.lesson.text.value
    explorer.lesson.next.click()
    assert "Step 8 of 16: t_max" in explorer.lesson.text.value
    assert explorer.panels[explorer.tabs.selected].title == "t_max"
    explorer.bridge.selection = ""
    explorer.tabs.selected = titles.index("Sharding")
    assert "stage 0:" in explorer.lesson.text.value, "the stage that the tab shows"
    explorer.tabs.selected = titles.index("t_max")

    explorer.toolbar_pressed("teach", {}, [])
    assert [title for title, *_ in explorer.tabs.tabs] == [p.title for p in explorer.panels] == usual
    assert explorer.panels[explorer.tabs.selected].title == "t_max"
    assert explorer.lesson.widget.layout.display == "none"
