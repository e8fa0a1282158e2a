"""One file per tab: its title, the question that it answers, and its controls. Figures are in alpa_explore.figures.

- The plan: layers, cluster, sharding, stage_costs, t_max, frontier (the Memory tab), microbatches, timeline.
- Against other plans: why, search, compare, solvers.
- run: train with the plan; run_status describes the run in words. It ends when it is stopped, when the output of the
  explorer is cleared, when its page is left for good, or with the kernel.

To add a tab: a figure in alpa_explore.figures, a file here, a line in explorer.py, a lesson in lessons.py. Tabs do not
import one another.
"""
