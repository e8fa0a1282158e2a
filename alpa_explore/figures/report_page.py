"""All plans that were tried as one self-contained HTML page: a table to sort, the chosen plan's figures, comparisons.

The page shows settings only where plans differ in them, and marks what differs from the chosen plan.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from alpa_explore.errors import OptionError
from alpa_explore.figures import tuning
from alpa_explore.figures.comparisons.compare import compare_figure, compare_table
from alpa_explore.figures.html_page import Section, escaped, html_page
from alpa_explore.figures.page import page_sections
from alpa_explore.plans.plan import Plan
from alpa_explore.plans.report.compare import change_text, settings_in_words, tried_table
from alpa_explore.plans.report.error_bands import plan_bands_sentence
from alpa_explore.plans.report.parallelism import parallelism_lines
from alpa_explore.plans.report.tables import Row
from alpa_explore.plans.report.text import cell, heading, number_of, sentence

_TABLE_NOTE = "The plans in the order in which they were tried; press a heading to sort. What differs from the chosen "
_TABLE_NOTE += "plan is bold; settings that all plans share are below the figures."
_HEADINGS = {
    "plan_number": "plan",
    "iteration_seconds": "iteration",
    "time_fraction": "time a sample",
    "samples_a_second": "samples/s",
    "mfu_fraction": "MFU",
}
"""Of columns whose names say less than readers want."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried:
    """A plan that was tried."""

    plan: Plan
    code: str = ""
    """Python code that makes it; '' where only its settings are known."""


def report_html(tried: Sequence[Tried], *, chosen: int = -1) -> str:
    """The page; `chosen` is the place of the plan whose figures it has. OptionError where there is no plan."""
    if not tried:
        raise OptionError("There is nothing to report", found="no plan", remedy="Give one plan or more.")
    place = chosen % len(tried)
    plan = tried[place].plan
    head = (
        f'<p class="lead">{escaped(f"{sentence(plan)} {plan_bands_sentence(plan)}")}</p>\n'
        f'<section aria-labelledby="tried-title"><h2 id="tried-title">What was tried</h2>\n'
        f'<p class="question">{escaped(_TABLE_NOTE)}</p>\n{_table_html(tried, place)}</section>\n'
    )
    sections = [*_comparisons(tried, place), *page_sections(plan)]
    title = f"{len(tried):,} plan{'s' * (len(tried) > 1)} tried for {plan.model.name}"
    footer = escaped(f"Made by alpa_explore. The figures show plan {place + 1}: {plan.model.name} on {plan.cluster}.")
    return html_page(title, head, sections, footer, after=_settings_html(tried, place))


def _comparisons(tried: Sequence[Tried], place: int) -> list[Section]:
    """The chosen plan beside the fastest of the others."""
    plan = tried[place].plan
    others = sorted((n for n in range(len(tried)) if n != place), key=lambda n: -tried[n].plan.samples_per_second)
    return [
        Section(
            f"compare-{n + 1}",
            f"Plan {place + 1} beside plan {n + 1}",
            "What changed, and what did that do to time, memory and every stage?",
            partial(compare_figure, plan, tried[n].plan, other_name=f"plan {n + 1}"),
            compare_table(plan, tried[n].plan),
        )
        for n in others[: tuning.REPORT_COMPARISONS]
    ]


def _table_html(tried: Sequence[Tried], place: int) -> str:
    plans = [one.plan for one in tried]
    rows: list[Row] = [
        {**row, "layout": "; ".join(parallelism_lines(plan))}
        for row, plan in zip(tried_table(plans[place], plans), plans, strict=True)
    ]
    heads = "".join(
        f'<th scope="col"{_numeric(value)}><button type="button">'
        f"{escaped(_HEADINGS.get(name) or heading(name))}</button></th>"
        for name, value in rows[place].items()
    )
    body = "".join(
        f"<tr{' class=chosen aria-current=true' if n == place else ''}>"
        + "".join(_cell_html(name, value, rows[place][name], chosen=n == place) for name, value in row.items())
        + "</tr>\n"
        for n, row in enumerate(rows)
    )
    table = f"<table data-sortable><thead><tr>{heads}</tr></thead><tbody>\n{body}</tbody></table>"
    return f'<div class="scroll" tabindex="0" role="region" aria-label="What was tried">{table}</div>'


def _cell_html(name: str, value: object, chosen_value: object, *, chosen: bool) -> str:
    """A cell; bold where it differs from the chosen plan's. Numbers, also those of settings, sort as such."""
    text = _text(name, value)
    number = number_of(value)
    sorts = "" if number is None else f' data-value="{number!r}"'
    if name == "plan_number":
        return f"<td{sorts}{_numeric(value)}>{escaped(text)}{' (chosen)' * chosen}</td>"
    shown = escaped(text) if text == _text(name, chosen_value) else f"<b>{escaped(text)}</b>"
    return f"<td{sorts}{_numeric(value)}>{shown}</td>"


def _text(name: str, value: object) -> str:
    return change_text(value) if name == "time_fraction" and isinstance(value, float) else cell(name, value)


def _numeric(value: object) -> str:
    return "" if number_of(value) is None else ' class="number"'


def _settings_html(tried: Sequence[Tried], place: int) -> str:
    """The settings of every plan, as code where that is known."""
    parts = []
    for n, one in enumerate(tried):
        words = "".join(
            f"<li>{escaped(name)}: {escaped(value)}</li>" for name, value in settings_in_words(one.plan).items()
        )
        shown = f"<pre>{escaped_lines(one.code)}</pre>" if one.code else f"<ul>{words}</ul>"
        opened = " open" if n == place else ""
        parts.append(f"<details{opened}><summary>Plan {n + 1}</summary>{shown}</details>\n")
    return (
        '<section id="section-settings" aria-labelledby="title-settings"><h2 id="title-settings">Settings</h2>\n'
        f'<p class="question">What makes each plan again.</p>\n{"".join(parts)}</section>'
    )


def escaped_lines(text: str) -> str:
    """Plain text of several lines as HTML."""
    return "\n".join(escaped(line) for line in text.splitlines())
