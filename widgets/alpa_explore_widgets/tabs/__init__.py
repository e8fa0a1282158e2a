"""The tabs: title, question, controls. Figures are in alpa_explore.figures.

- of_plan: Overview (four small figures, from the room of that name), Memory, Sharding, Timeline. Layers, Cluster,
  Costs, t_max and Microbatches (one figure, no controls) are in tab_groups.
- Uniform layouts (Fit & scale, Layouts), which need no plan: the room layouts.
- history: Search, Compare; why: what a change brings, and all plans. accuracy: measured runs that were published.
- run: train with the plan, and the run in words. It ends when it is stopped, when the output of the
  explorer is cleared, when its page is left for good, or with the kernel.

To add a tab: a figure in alpa_explore.figures, a class here, a line in tab_groups.py, a lesson in lessons.toml. Tabs do
not import one another.
"""
