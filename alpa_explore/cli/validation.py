"""`alpa-explore validation`: how good the predictions are, from the measured runs that are stored with this version."""

import argparse

from alpa_explore.cli.output import print_json, write_file
from alpa_explore.plans.report.text import cell, render_table

COMMAND = """validation  how good the predictions are: predicted against measured runs
    Show how far predictions are from training runs that people measured and published: by source, for the choice of
    layouts, and where the cost model is wrong.
--html FILE  write one self-contained page with every run
--json  print JSON"""
EPILOG = "Runs of your own are predicted and scored by `alpa-explore predict ROWS.csv`."

_NOTE = """± is the mean error, the mean of |predicted / measured − 1|, over the runs that count: those that ran, whose
source does not doubt their figures, and that have a prediction. 'not fitted': over those that no figure of the cost
model was fitted to. regret: the measured time of the layout predicted to be best over that of the best one, − 1, mean
over groups of layouts of one model on the same GPUs."""
_COLUMNS = (
    ("source", "source"),
    ("runs", "runs"),
    ("refused", "refused"),
    ("with_times", "with times"),
    ("mean_error_fraction", "± time"),
    ("bias_fraction", "bias"),
    ("not_fitted_error_fraction", "± not fitted"),
    ("with_enough_mfu", "MFU ≥ 15 %"),
    ("their_error_fraction", "± of these"),
    ("kendall_tau", "tau"),
    ("regret_fraction", "regret"),
    ("memory_runs", "with memory"),
    ("memory_error_fraction", "± memory"),
    ("too_large_but_ran", "said too large, ran"),
    ("fits_but_failed", "said to fit, failed"),
)


def run(options: argparse.Namespace) -> int:
    """Print the errors by source, the choices and the weak spots, or write the page."""
    from alpa_explore.accuracy.record import stored_record
    from alpa_explore.figures.accuracy.layout_choices import layout_choices_sentence, layout_choices_table
    from alpa_explore.figures.accuracy.predictions import predictions_sentence, predictions_table
    from alpa_explore.figures.accuracy.sources import sources_table
    from alpa_explore.figures.accuracy.weak_spots import reasons_table, weak_spots_sentence, weak_spots_table
    from alpa_explore.figures.accuracy_page import accuracy_html, made

    record = stored_record()
    write_file(options.html, lambda: accuracy_html(record))
    if options.json:
        print_json(
            {
                "made": record.made,
                "runs": predictions_table(record),
                "sources": sources_table(record),
                "choices": layout_choices_table(record),
                "weak_spots": weak_spots_table(record),
                "reasons": reasons_table(record),
            }
        )
        return 0
    print(made(record))
    if not record.runs:
        return 0
    rows = [{title: cell(name, row[name]) for name, title in _COLUMNS} for row in sources_table(record)]
    spots = [
        {key: row[key] for key in ("source", "what", "value", "runs", "mean_error_fraction", "bias_fraction", "why")}
        for row in weak_spots_table(record)
    ]
    print(f"\n{render_table(rows)}\n\n{_NOTE}\n")
    print(f"{predictions_sentence(record)}\n{predictions_sentence(record, quantity='bytes')}\n")
    print(f"{layout_choices_sentence(record)}\n\n{weak_spots_sentence(record)}\n\n{render_table(spots)}\n")
    for row in reasons_table(record):
        print(f"{row['source']}, {row['runs']}: {row['why']}")
    return 0
