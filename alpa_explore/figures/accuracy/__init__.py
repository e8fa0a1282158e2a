"""How good are these numbers? Measured runs beside what the cost model predicts for them.

    marks           the colour and symbol of each source, and what a point says of its run
    predictions     predicted against measured time or memory, every run a point
    sources         the errors of each source of runs: how wide, and to which side
    layout_choices  of measured layouts of one model and number of GPUs: how good is the one predicted to be best?
    weak_spots      the kinds of runs that are predicted worst, and why

They draw a `Record` of `alpa_explore.accuracy`, not a plan: `NAME_figure(record)`, `NAME_table(record)`,
`NAME_sentence(record)`.
"""
