"""The report of what was tried: one file, every plan a row, differences marked, and it sorts in a browser."""

from dataclasses import replace

import pytest

from alpa_explore.errors import OptionError
from alpa_explore.figures.report_page import Tried, report_html
from alpa_explore.plans.plan import Plan
from tests.figures.conftest import HOSTILE
from tests.figures.test_page import Elements
from tests.plans.example import example_plan


@pytest.fixture(scope="module")
def tried(plan: Plan) -> list[Tried]:
    """Three plans: two with another number of microbatches, of which one is slower by a factor."""
    slower = replace(plan.predicted, iteration_seconds=2 * plan.predicted.iteration_seconds)
    return [
        Tried(plan=example_plan(num_microbatches=16), code="import alpa_explore as ax\nplan = 1 < 2"),
        Tried(plan=plan),
        Tried(plan=replace(plan, options=replace(plan.options, delta=0.25), predicted=slower)),
    ]


@pytest.fixture(scope="module")
def page(tried: list[Tried]) -> str:
    return report_html(tried, chosen=1)


def test_every_plan_is_a_row_and_the_chosen_one_says_so(page: str) -> None:
    table = page.partition("<table data-sortable>")[2].partition("</table>")[0]
    rows = table.partition("<tbody>")[2].split("</tr>")[:-1]
    assert len(rows) == 3
    assert ["chosen" in row for row in rows] == [False, True, False]
    assert table.count("(chosen)") == 1


def test_only_settings_that_differ_are_columns_and_differences_are_bold(page: str) -> None:
    table = page.partition("<table data-sortable>")[2].partition("</table>")[0]
    assert ">B</button>" in table
    assert ">δ</button>" in table
    assert ">solver</button>" not in table
    rows = table.partition("<tbody>")[2].split("</tr>")[:-1]
    assert "<b>16</b>" in rows[0]
    assert "<b>" not in rows[1]
    assert "<b>0.25</b>" in rows[2]
    assert "+100 %" in rows[2]


def test_the_settings_of_every_plan_are_code_or_words(page: str) -> None:
    settings = page.partition('id="section-settings"')[2]
    assert "import alpa_explore as ax\nplan = 1 &lt; 2" in settings
    assert settings.count("<details") == 3
    assert "<li>solver: " in settings


def test_the_chosen_plan_is_compared_with_the_others_the_fastest_first(page: str) -> None:
    places = [page.index(f'id="compare-{number}"') for number in (1, 3)]
    assert places == sorted(places)
    assert 'id="compare-2"' not in page


@pytest.mark.slow
def test_a_single_plan_has_nothing_to_compare_with_and_none_is_refused(plan: Plan) -> None:
    assert 'id="compare-' not in report_html([Tried(plan=plan)])
    with pytest.raises(OptionError, match="nothing to report"):
        report_html([])


@pytest.mark.slow
def test_names_of_a_stranger_add_no_element(plan: Plan, hostile_plan: Plan) -> None:
    pages = [
        report_html([Tried(plan=p), Tried(plan=p, code=code)]) for p, code in ((plan, "x"), (hostile_plan, HOSTILE))
    ]
    tags = [[tag for tag, _ in Elements(page).tags] for page in pages]
    assert tags[0] == tags[1]
    assert HOSTILE not in pages[1]
