"""Widgets without knowledge of plans, each with its JavaScript module in static/. To read in this order:

- static_files: the JavaScript modules, with the helpers that they share.
- page_widget: the base of widgets that the page changes: a message is taken with the lock of the explorer's state.
- fields: number, choice and text fields, buttons, tabs, the toolbar, and the bridge to the page (theme, selection).
- plotly_figure: a figure; the page loads plotly.js once, and a change is one gzipped message.
- linked_view: HTML whose marks follow the selection and make it, as those of figures do.
- sortable_table, answer_list: a table with pins, sorted on the page; a row of questions with their answers.
- dataflow_graph: the operators of a stage as a graph, laid out and drawn by the page.
- timeline_player: an iteration played on the page, over the figure of the timeline.
- tables: rows as HTML, whose rows can be selected, and as CSV.
- widget_tree: all widgets below one; sends their states once more to a page that was loaded meanwhile.
- message_order: a press takes effect after the values that were typed before it.

A selection is a key such as `stage:2/layer:3` (alpa_explore.figures.keys); the browser fades marks that disagree with
it. Imports nothing else of the front end.
"""
