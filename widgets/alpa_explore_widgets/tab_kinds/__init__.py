"""The base classes of the tabs.

- panel: `Panel`, a question and what answers it, brought up to date only while the tab is selected.
- panel_list: `PanelList`, all panels in the order of the tabs, each made when its tab is first selected.
- figure_panel: `FigurePanel`, a Panel with a figure of plotly and a table; `PlanPanel`, whose figure and table are
  functions of the plan in alpa_explore.figures; `AskedPanel`, about what is asked for in the background.
- stage_panel: a PlanPanel about one stage, with a choice of the stage.

Imports panels, elements and session, but no tab.
"""
