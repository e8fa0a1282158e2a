"""How much a figure draws before it aggregates, samples or omits data. The tables beside the figures are complete.

A browser takes longer than a second to draw thousands of bars, and every hover text travels to the page. A value whose
text gives no reason was set by hand; not measured. `benchmarks/explorer_latency.py` measures what they protect.
"""

from __future__ import annotations

LAYER_MARKS = 2000
"""Bars of the layers figure: above this, neighbouring operators of one layer share a bar. Thousands of bars take a
browser longer than a second."""
LABELLED_CUTS = 8
"""Cuts with their bytes written beside them; labels of more cuts would overlap."""
T_MAX_CANDIDATES = 1500
"""Candidates in the lower panel of the t_max figure: above this, each n-th of those that were not evaluated."""
T_MAX_NARROWEST, T_MAX_WIDEST = 0.08, 0.5
"""The t_max figure opens on the optimum and this share of its t_max to the right: on an axis up to the latency of the
whole model on one device, T is one straight line, and Σt cannot be seen."""
STAGE_COST_PANELS = 12
"""Submeshes that the stage costs figure draws unless the caller selects some."""
STAGE_COST_RATIO = 4.0
"""The stage costs figure ends at ranges whose latency is this multiple of t_max: a pipeline with a slower one takes
about that many times as long, and their colours would leave few to tell the others apart."""
SHARDING_ROWS = 48
"""Rows of the sharding figure on one page; what a screen of usual height shows."""
SHARDING_TIME_SHARE = 0.95
"""Of a stage with more operators, the rows that together take this share of its time are shown."""
SHARDING_INPUTS = 4
"""Inputs of an operator with a column of their own; the hover text lists all."""
SPEC_CONSTRAINTS_SHOWN = 3
"""Spec constraints that the title of the sharding figure names."""
COLLECTIVES_SHOWN = 6
"""Collectives that a hover text of the sharding figure names."""
TIMELINE_TASKS = 700
"""Tasks of a timeline drawn as one bar each; above this, the busy share of each submesh over time is drawn."""
TIMELINE_NUMBERED_TASKS = 200
"""Up to this number of tasks each bar has the number of its microbatch written in it."""
TIMELINE_INTERVALS = 240
"""Intervals of time in which a busy share, or a memory curve of many steps, is sampled."""
TIMELINE_MEMORY_CURVES = 8
"""Submeshes with a memory curve of their own, those with the highest peaks first."""
WHY_BARS = 8
"""Limits, and changes, that the Why figure draws."""
NOTICEABLE_SHARE = 5e-4
"""Gains and differences below this share (0.05 %) are shown as none."""
COMPARE_SETTINGS = 4
"""Differing settings that the sentence of the compare figure names."""
RUN_STEPS = 1000
"""Steps of a run that are drawn: above this, each k-th."""
RUN_LINEAR_RATIO = 10.0
"""Where measured and predicted seconds of a step differ by more than this factor the axis is logarithmic: on a linear
axis the smaller one could not be told from 0."""
PAGE_TABLE_ROWS = 2000
"""Rows of a table on the HTML page; a page with more of them opens slowly."""
