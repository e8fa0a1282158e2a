"""The base classes of the tabs.

- panel: `Panel`, a question and what answers it, brought up to date only while the tab is selected; `PanelList`, all of
  them in the order of the tabs, each made when its tab is first selected.
- figure_panel: `FigurePanel`, a Panel with a figure of plotly and a table; `PlanPanel`, whose figure and table are
  functions of the plan in alpa_explore.figures; `AskedPanel`, about what is asked for in the background;
  `StagePanel`, about one stage, with a choice of it.

Imports panels, elements and session, but no tab.
"""
