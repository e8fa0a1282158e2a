"""One iteration of a plan over time, under one schedule or several.

timeline   the figure, its sentence and its table; a strip of the whole iteration frames the parts that are shown
frame      the heights and axes of a figure, its legend, the names of the parts
tasks      the tasks of one timeline as a Gantt chart: idle time, sends, critical path
memory     what devices hold, below the tasks and on the same axis of time
stage_memory   what fills a device of one stage over time: weights, gradients, each microbatch in flight, workspace
playback       the tasks as numbers, for the page to walk through them
chart      where one timeline is drawn: axes, the place of a moment on them; many tasks in a fixed number of intervals
parts      which parts of an iteration are shown: warm-up, some steady microbatches, drain

Imports keys, marks, style and tuning of the package above; not the other rooms, nor the page.
"""
