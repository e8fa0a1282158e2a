"""How good are these numbers? All measured runs beside their predictions as one self-contained HTML page."""

from collections.abc import Callable, Sequence
from functools import partial

from alpa_explore.accuracy.record import Record, stored_record
from alpa_explore.figures.accuracy.layout_choices import layout_choices_figure, layout_choices_table
from alpa_explore.figures.accuracy.predictions import predictions_figure, predictions_table
from alpa_explore.figures.accuracy.sources import sources_figure, sources_sentence, sources_table
from alpa_explore.figures.accuracy.weak_spots import reasons_table, weak_spots_figure, weak_spots_table
from alpa_explore.figures.html_page import Section, escaped, html_page
from alpa_explore.figures.style import Figure
from alpa_explore.plans.report.tables import Row

TITLE = "How good are these numbers?"


def accuracy_html(record: Record | None = None) -> str:
    """The page: predicted against measured, errors by source, choices of layouts, and where the model is wrong."""
    record = stored_record() if record is None else record
    return html_page(TITLE, _head_html(record), _sections(record), escaped(f"Made by alpa_explore. {made(record)}"))


def made(record: Record) -> str:
    """What the record holds, in a sentence."""
    if not record.runs:
        return "No measured runs are stored with this version."
    return f"{len(record.runs):,} measured runs from {len(record.sources)} sources; predictions of {record.made}."


def _head_html(record: Record) -> str:
    reasons = "".join(
        f"<li>{escaped(row['source'])}, {escaped(row['runs'])}: {escaped(row['why'])}</li>"
        for row in reasons_table(record)
    )
    known = f'<div class="warnings" role="note"><b>To know beforehand</b><ul>{reasons}</ul></div>'
    return (
        f'<p class="settings">{escaped(made(record))} A run counts if it ran, its source does not doubt its figures, '
        "and it has a prediction. Error: predicted / measured − 1; mean error: the mean of its absolute value. Runs "
        "that no figure was fitted to are scored apart from the others.</p>\n"
        f'<p class="lead">{escaped(sources_sentence(record))}</p>\n{known if record.runs else ""}'
    )


_QUESTIONS = {
    "time": "How close is the predicted time of every run to the measured one?",
    "memory": "How close is the predicted memory of a device to the measured one, where a source prints it?",
    "sources": "How wide are the errors of each source, and to which side? What was said to fit in memory, and did?",
    "choices": "Does the planner choose well? Of the layouts of one model on the same GPUs: how much longer than the "
    "best does the one take that is predicted to be best?",
    "weak-spots": "Which kinds of runs are predicted clearly worse than the others of their source, and why?",
}


def _sections(record: Record) -> list[Section]:
    runs = predictions_table(record)
    in_bytes, measured = partial(predictions_figure, quantity="bytes"), [row for row in runs if row["measured_bytes"]]
    shown: dict[str, tuple[str, Callable[..., Figure], Sequence[Row]]] = {
        "time": ("Iteration times", predictions_figure, runs),
        "memory": ("Memory", in_bytes, measured),
        "sources": ("Errors by source", sources_figure, sources_table(record)),
        "choices": ("Choice of a layout", layout_choices_figure, layout_choices_table(record)),
        "weak-spots": ("Where the model is wrong", weak_spots_figure, weak_spots_table(record)),
    }
    return [
        Section(name, title, _QUESTIONS[name], partial(draw, record), rows)
        for name, (title, draw, rows) in shown.items()
    ]
