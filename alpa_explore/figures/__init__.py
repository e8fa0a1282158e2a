"""Figures: pure functions from a plan (or a comparison, or a run) to a plotly figure.

A figure module `NAME` has three public functions: `NAME_figure` draws, `NAME_table` gives the same numbers as rows,
`NAME_sentence` states in one sentence what the figure shows for this plan; the sentence is also the figure's title.
Read in this order, which is also the order of imports:

keys, style    the text that identifies a mark; colours, themes, titles, escaping (neither imports plotly at load)
tuning         how much a figure draws before it aggregates
marks          bars, lines, points, words, cells; axes, notes, and a grid of plots: what all figures are made of;
               axis ranges that fit the points, and labels that do not cover one another
decisions/     what one plan decided: layers, submeshes, t_max, stage costs, sharding, memory
timelines/     one iteration of a plan over time
dataflow/      a stage as a graph of its operators, as a value and as JSON for the page that draws it
comparisons/   several plans, numbers of microbatches or solvers beside each other
layouts        every uniform layout of a model on a cluster; the best of them on other clusters
accuracy/      measured training runs beside their predictions, all that the record has
course/        the figures of the lessons, with precomputed states
runs           a training run beside its prediction: while it runs, and when it is over
page           the figures of a plan with their questions and tables, in order, as one self-contained HTML page
accuracy_page  all measured runs beside their predictions as such a page
report_page    all plans that were tried as such a page: a table to sort, figures, comparisons
html_page      what the pages are made of: sections with a figure and a table each

A figure is drawn without a theme: its function returns a `Drawing`, in which colours that a theme decides are functions
of it; `style.with_theme` calls them at the end. Only this package and the front end import plotly. It imports neither
torch nor Dask nor ipywidgets.
"""
