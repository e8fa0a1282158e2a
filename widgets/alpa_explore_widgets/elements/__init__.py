"""Widgets without knowledge of plans, each with its JavaScript module in static/. To read in this order:

- page_widget: the base of widgets that the page changes (a message is taken with the lock of the explorer's state), and
  of those that show a document; JavaScript modules, each sent once for all widgets of a class; all widgets below one.
- fields: number, choice and text fields, buttons, tabs, the toolbar, and the bridge to the page (theme, selection);
  `CONTROLS`, labels and tooltips, from controls.toml beside the guide of the front end.
- figures: a plotly figure, for which the page loads plotly.js once, and a change is one gzipped message; HTML whose
  marks follow the selection and make it, as those of figures do; the operators of a stage as a graph; an iteration
  played over the figure of the timeline.
- tables: rows as HTML, whose rows can be selected, and as CSV.
- message_order: a press takes effect after the values that were typed before it.

A selection is a key such as `stage:2/layer:3` (alpa_explore.figures.keys); the browser fades marks that disagree with
it. Imports nothing else of the front end.
"""
