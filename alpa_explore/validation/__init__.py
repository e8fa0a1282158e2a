"""Validation: the cost model held against measured training runs. A file of runs in, predictions and their errors out.

In the order to read them:

    runs/      files of measured runs: read row by row, checked, completed; device, software, stages of a run
    run_price  the price of a run from the work of its model, by `baselines`
    predict    rows -> predicted seconds and bytes, in two processes; a prediction as a run of the record
    score      errors, order, regret, memory, fits against failed, by source and group
    report     records and tables of predictions and scores

It imports `baselines` and what is below it; `cli` and `figures` use it.

Concepts that others use: Rows.
"""
