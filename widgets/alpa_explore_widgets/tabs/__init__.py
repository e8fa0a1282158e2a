"""The tabs: title, question, controls. Figures are in alpa_explore.figures.

- The plan: plan_figures (Layers, Cluster, Costs, t_max, Microbatches: one figure, no controls), and a file each for
  sharding, frontier (the Memory tab) and timeline.
- Against other plans: why, search, compare, solvers. Against measured runs that were published: accuracy.
- run: train with the plan; run_status describes the run in words. It ends when it is stopped, when the output of the
  explorer is cleared, when its page is left for good, or with the kernel.

To add a tab: a figure in alpa_explore.figures, a class here, a line in explorer.py, a lesson in lessons.py. Tabs do not
import one another.
"""
