"""How much a figure draws before it aggregates, samples or omits data. The tables beside the figures are complete.

A browser takes longer than a second to draw thousands of bars, and every hover text travels to the page. A value whose
text gives no reason was set by hand; not measured. `benchmarks/explorer_latency.py` measures what they protect.
"""

LAYER_MARKS = 600
"""Bars of the layers figure, which is about as many pixels wide: above this, neighbouring operators of one layer share
a bar."""
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
SHARDING_SECONDS_ROOM = 3.0
"""The axis of seconds is this many times as long as the longest bar: the values stand to the right of the bars, also
in a narrow window."""
SPEC_CONSTRAINTS_SHOWN = 3
"""Spec constraints that the title of the sharding figure names."""
COLLECTIVES_SHOWN = 6
"""Collectives that a hover text of the sharding figure names."""
TIMELINE_TASKS = 700
"""Tasks of a timeline drawn as one bar each; above this, the busy share of each submesh over time is drawn."""
TIMELINE_PIXELS = 480
"""Assumed width of a timeline's plot, between those in a window of 900 and of 1,400 pixels. A number is written on a
bar that is wide enough for it."""
TIMELINE_STEADY_MICROBATCHES = 3
"""Microbatches between warm-up and drain that a timeline shows."""
TIMELINE_WHOLE_SHARE = 0.8
"""Where warm-up, steady microbatches and drain are more than this share of an iteration, all of it is shown."""
TIMELINE_GAP_SHARE = 0.035
"""Gap between two parts of a timeline, as a share of what is shown."""
TIMELINE_LABELLED_ROWS = 16
"""Rows of a timeline with a name beside them; names of more rows would overlap."""
TIMELINE_INTERVALS = 240
"""Intervals of time in which a busy share, or a memory curve of many steps, is sampled."""
TIMELINE_MEMORY_CURVES = 4
"""Submeshes with a memory curve of their own, those with the highest peaks first."""
MEMORY_SLOTS = 10
"""Microbatches in flight with an area of their own in the figure of a stage's memory; above this, several share one."""
NOTICEABLE_SHARE = 5e-4
"""Gains and differences below this share (0.05 %) are shown as none."""
COMPARE_SETTINGS = 4
"""Differing settings that the sentence of the compare figure names."""
COMPARE_STAGES = 4
"""Stages that it names by their numbers."""
COMPARE_KINDS = 3
"""Kinds of operators that it names."""
SAME_POINT_SHARE = 5e-3
"""Plans whose throughput and memory are within this share of each other are one point of the search figure."""
SAME_PLACE_SHARE = 0.03
"""Or within this share of the extent of its axes, where their marks would cover each other."""
NO_PLANS_NAMED = 4
"""Attempts without a plan that its sentence names; the legend and the table have all."""
AXIS_FROM_ZERO = 0.6
"""An axis of points begins at 0 where the least value is below this share of the largest; else it fits the points."""
ALMOST_AS_FAST = 0.01
"""Choices of the memory figure within this share of the fastest that fits are called almost as fast."""
MEMORY_FROM_ZERO = 0.15
"""Like AXIS_FROM_ZERO, for the memory figure, whose choices should fill the plot."""
MEMORY_BARS = 10
"""Choices that it draws as bars; all are marks."""
LAYOUT_RATIO, LAYOUT_BYTES, LAYOUT_POINTS = 1.6, 1.25, 1000
"""Layouts are drawn up to this multiple of the fastest and of the memory of a device, and so many of them, the best
first: those among which one would choose can be told apart."""
RUN_STEPS = 1000
"""Steps of a run that are drawn: above this, each k-th."""
RUN_LINEAR_RATIO = 10.0
"""Where measured and predicted seconds of a step differ by more than this factor the axis is logarithmic: on a linear
axis the smaller one could not be told from 0."""
PAGE_TABLE_ROWS = 2000
"""Rows of a table on the HTML page; a page with more of them opens slowly."""
LABELLED_PIXELS = 600
"""Least width at which figures with many labels are drawn; on a narrower page they are made smaller as a whole."""
COURSE_STATES = 160
"""States of an interactive figure of the course; each is some 15 kB of an offline page."""
COURSE_NUMBERED_TASKS = 200
"""Tasks up to which a schedule of the course numbers its microbatches."""
REPORT_COMPARISONS = 3
"""Other plans beside which a report shows the chosen one, the fastest first: each adds some 0.1 MB to the page."""
