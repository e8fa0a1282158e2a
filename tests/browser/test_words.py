"""What people read in the explorer: every text of every tab, as figures and as tables, with lessons and tooltips.

Two explorers are walked: a small one, whose plan is made, and one of a plan file of the size of gpt-1.3b. The texts are
gathered once; the tests look for raw values, numbers that nobody can read, two names for one thing, and riddles.
"""

import re
from dataclasses import dataclass

import pytest
from playwright.sync_api import Locator

from alpa_explore.plans.phrases import stage_phrase
from alpa_explore.plans.plan import Plan
from tests.browser.harness.explorer import SMALL, first_explorer, show_plan, show_tab, tab_titles
from tests.browser.harness.kept import KeptPage
from tests.browser.harness.page import LabPage
from tests.daily import today
from tests.plans.example import example_plan

pytestmark = [pytest.mark.browser, pytest.mark.slow]

WITHOUT_FIGURE = ("Overview", "Fit & scale", "Layouts", "Compare", "Accuracy", "Run", "Why")
"""Tabs without a figure of plotly, or with a note for this model, until something is pressed, or runs are stored."""
AS_TABLES = ("small", "loaded")[today().toordinal() % 2]
"""The explorer whose tables are read on this day: the words are the same, the numbers another plan's."""
_GATHER = """(explorer) => {
  const found = [];
  const add = (kind, text) => { if (text && text.trim()) found.push([kind, text.trim().replace(/\\s+/g, ' ')]); };
  for (const element of explorer.querySelectorAll('*')) {
    if (!element.checkVisibility() || element.closest('pre, code, style, script')) continue;
    const own = [...element.childNodes].filter((node) => node.nodeType === Node.TEXT_NODE);
    add('text', own.map((node) => node.textContent).join(' '));
    add('hint', element.getAttribute('title'));
    add('name', element.getAttribute('aria-label'));
    if (element instanceof HTMLSelectElement) [...element.options].forEach((option) => add('choice', option.label));
    if (element.closest('.alpa-stages')) add('stage', element.getAttribute('title'));
  }
  for (const plot of explorer.querySelectorAll('.js-plotly-plot')) {
    if (!plot.checkVisibility()) continue;
    const strings = (value) => (typeof value === 'string' ? [value]
      : Array.isArray(value) ? value.flatMap(strings) : []);
    for (const trace of plot._fullData ?? []) {
      for (const text of strings(trace.hovertext)) add('hover', text);
      for (const text of strings(trace.text)) add('mark', text);
      add('legend', trace.name);
    }
  }
  return found;
}"""


@dataclass(frozen=True)
class Said:
    """A text, and where it was found."""

    where: str
    """Explorer, tab, kind of text."""
    text: str


@dataclass(frozen=True)
class Walked:
    """The texts of both explorers, the plans, and what the controls of the first explorer are called."""

    said: tuple[Said, ...]
    plan: Plan
    """Of the explorer 'loaded'."""
    nameless: tuple[str, ...]
    """Controls without an accessible name, as HTML."""
    hintless: tuple[str, ...]
    """Fields without a tooltip, by their name."""

    def texts(self, explorer: str, title: str, *kinds: str) -> list[str]:
        return [s.text for s in self.said for kind in kinds if s.where == f"{explorer}, {title}, {kind}"]


@pytest.fixture(scope="module")
def walked(kept_lab: KeptPage[LabPage]) -> Walked:
    said: dict[Said, None] = {}
    with kept_lab.page() as lab:
        lab.show(SMALL)
        explorer = first_explorer(lab)
        nameless, hintless = _unnamed(explorer)
        walk(lab, explorer, "small", said)
        plan = example_plan("2x8:v100", num_layers=12, num_microbatches=1024, name="gpt-loaded")
        explorer = show_plan(lab, plan)
        explorer.locator(".alpa-card").first.wait_for()
        walk(lab, explorer, "loaded", said)
        return Walked(tuple(said), plan, nameless, hintless)


def walk(lab: LabPage, explorer: Locator, name: str, said: dict[Said, None]) -> None:
    """Select every tab, with lessons: once with its figure, and where it is its turn once as a table."""
    for button in ("Teach", "Tables")[: 1 + (name == AS_TABLES)]:
        explorer.get_by_role("button", name=button, exact=True).click()
        for title in tab_titles(explorer):
            show_tab(explorer, title)
            panel = explorer.locator(".alpa-panel:visible")
            explorer.locator(".alpa-lesson:visible").filter(has_text=f": {title}.").wait_for()
            if button == "Teach" and title == "Sharding":  # its graph, and then its matrix
                panel.locator(".alpa-flow-canvas").wait_for()
                panel.get_by_role("button", name="Open all").click()
                said |= {Said(f"{name}, {title}, {kind}", text): None for kind, text in explorer.evaluate(_GATHER)}
                panel.get_by_role("combobox", name="View").select_option("matrix")
            if button == "Teach" and title not in WITHOUT_FIGURE:
                plot = lab.figure(panel)
                lab.wait_until(lambda: bool(lab.read_figure(plot)["data"]), f"{title} was drawn")  # noqa: B023
            elif button == "Tables":
                rows = panel.locator(".alpa-table:visible").or_(panel.get_by_text("Nothing to list."))
                lab.wait_until(lambda: rows.count() > 0, f"{title} as a table")  # noqa: B023
            said |= {Said(f"{name}, {title}, {kind}", text): None for kind, text in explorer.evaluate(_GATHER)}
    show_tab(explorer, "Layers")


def _unnamed(explorer: Locator) -> tuple[tuple[str, ...], tuple[str, ...]]:
    nameless: list[str] = []
    for role in ("button", "slider", "spinbutton", "combobox", "textbox", "tab"):
        controls = explorer.get_by_role(role)  # type: ignore[arg-type]  # one of the roles of ARIA
        named = explorer.get_by_role(role, name=re.compile(r"\S"))  # type: ignore[arg-type]  # as above
        if controls.count() != named.count():
            nameless += controls.evaluate_all("(all) => all.map((one) => one.outerHTML)")
    fields = explorer.locator("input:visible, select:visible")
    hintless = fields.evaluate_all(
        "(all) => all.filter((one) => !one.closest('[title]')?.title).map((one) => one.ariaLabel || one.outerHTML)"
    )
    return tuple(nameless), tuple(hintless)


def found(walked: Walked, pattern: str, *, but: str = r"(?!)") -> list[str]:
    """Where a pattern is, unless `but` is at the same place of the text."""
    return sorted(
        {
            f"{said.where}: …{said.text[max(0, m.start() - 40) : m.end() + 40]}…"
            for said in walked.said
            for m in re.finditer(pattern, re.sub(but, " ", said.text))
        }
    )


def test_the_walk_saw_lessons_hovers_tables_and_choices(walked: Walked) -> None:
    assert len(walked.said) > 10_000
    for title in ("Layers", "Cluster", "Sharding", "Costs"):
        assert walked.texts("loaded", title, "hover", "mark"), title
        assert any("Step " in text for text in walked.texts("small", title, "text")), title


def test_a_mesh_with_a_shape_is_always_a_logical_mesh(walked: Walked) -> None:
    assert found(walked, r"(?i)(?<!logical )(?<!sub)\bmesh(es)?:? \(?\d") == []


def test_shapes_are_written_with_the_multiplication_sign_and_without_spaces(walked: Walked) -> None:
    cluster = r"\d+x\d+:\S+"  # what people type
    assert found(walked, r"(?<![\w.])\d+ ?x ?\d+(?!\w)", but=cluster) == []
    assert found(walked, r"(?i)(submesh|mesh|layers \S+ on) \d+ × \d+") == []


def test_no_value_is_shown_as_python_writes_it(walked: Walked) -> None:
    assert found(walked, r"\(\d+, (\d+)?\)|\((\d+, )+\d+\)") == []
    assert found(walked, r"\b(None|True|False|nan|NaN|inf|undefined|null)\b|\[object|Infinity") == []
    assert found(walked, r"(?<![\w.])\d+(\.\d+)?e[+-]?\d+\b") == [], "exponents are for programs"


def test_a_number_has_at_most_four_significant_digits_or_groups(walked: Walked) -> None:
    names = r"arXiv \S+|https?://\S+|tcp://\S+|[\w-]+-\d+(\.\d+)?B\b"  # the last: a model with its parameters
    assert found(walked, r"(?<![\w.,·/])\d{5,}(?![\w])", but=names) == []
    long = [
        f"{said.where}: {number} in {said.text[:80]}"
        for said in walked.said
        for number in re.findall(r"(?<![\w.,])\d+\.\d+", re.sub(names, " ", said.text))
        if len(number.replace(".", "").lstrip("0")) > 4
    ]
    assert long == []


def test_counts_and_ranges_are_written_in_one_way(walked: Walked) -> None:
    assert found(walked, r"(?i)\blayers? \d+( to |-| - )\d+") == [], "an en dash in ranges"
    assert found(walked, r"\bB ?= ?\d{4,}") == [], "B = 1,024"
    assert found(walked, r"\d(ms|µs|GiB|MiB|TFLOP)\b") == [], "a space before the unit"
    assert found(walked, r"\d%") == [], "a space before the percent sign, as everywhere else"


@pytest.mark.parametrize(
    ("title", "kinds", "more"),
    [
        ("Sharding", ("choice", "text"), " (logical mesh "),
        ("Memory", ("choice", "text"), " (logical mesh "),
        ("Layers", ("stage",), ""),
        ("Cluster", ("hover",), ""),
    ],
)
def test_a_stage_has_the_name_of_the_plan_report(walked: Walked, title: str, kinds: tuple[str, ...], more: str) -> None:
    said = walked.texts("loaded", title, *kinds)
    for stage in walked.plan.stages:
        assert any(stage_phrase(stage) + more in text for text in said), (title, said)


def test_the_costs_name_a_submesh_like_the_plan_report(walked: Walked) -> None:
    said = walked.texts("loaded", "Costs", "text", "hover", "mark")
    for nodes, devices in {stage.submesh for stage in walked.plan.stages}:
        assert any(re.search(rf"\b{nodes}×{devices}\b", text) for text in said), f"{nodes}×{devices}"


RIDDLES = (
    "of it collectives",
    "not among them",
    "A given plan",
    "comes with the first plan",
    "tensor cut into",
    "cut over",
    "samples per step",
    "powers of two of",
    "that were tried",
    "rematerialisation",
    "the mean submesh",
    "a point of the convex part",
    "(forward|backward|update) a microbatch",
    r"\d (µs|ms|s) (a|an) (microbatch|iteration)\b",
    r"sharded over the mesh",
)
"""Phrases that had to be read twice, and second names for one thing."""


@pytest.mark.parametrize("riddle", RIDDLES)
def test_nothing_has_to_be_read_twice(walked: Walked, riddle: str) -> None:
    assert found(walked, riddle) == []


def test_a_spec_is_explained_where_it_is_shown(walked: Walked) -> None:
    said = walked.texts("small", "Sharding", "text")
    assert any("S0: this dim is divided over mesh axis 0 (2 devices), R: whole" in text for text in said)
    hovers = walked.texts("small", "Sharding", "hover")
    explained = [text for text in hovers if "<b>S0R</b>: dim 0 (" in text]
    assert explained
    assert all(re.search(r"over axis 0 → \d+ each<br>every device holds \d+×\d+ of \d+×\d+", t) for t in explained)
    assert any("<br>tensor hidden." in text for text in explained), "tensors have their names"


def test_every_control_has_a_name_and_every_field_a_tooltip(walked: Walked) -> None:
    assert walked.nameless == ()
    assert walked.hintless == ()
