"""The base classes of the tabs.

- figure_panel: `FigurePanel`, a question with a figure and a table, drawn only while the tab is selected; `PlanPanel`,
  whose figure and table are functions of the plan in alpa_explore.figures.
- stage_panel: a PlanPanel about one stage, with a choice of the stage.
- tried_panel: a PlanPanel that compares the plan with the others of the history.

Imports panels, elements and session, but no tab.
"""
