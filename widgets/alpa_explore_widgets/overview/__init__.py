"""The overview: four small linked figures of a plan, drawn as SVG without plotly, so that it is there at once.

- drawing: `Drawing` collects boxes, paths and labels and makes them HTML.
- parts, times: the cards Layers and Cluster, Timeline and Why, each a `Card` of a plan; the tab with the figure in
  depth has its title.
- cards: `overview_html`, all four; `plan_svg`, these and t_max for a page on which nothing runs.

Marks carry the keys of alpa_explore.figures.keys as `data-key`; the page highlights those that agree with the selection
or with what the pointer is on (`static/linked_view.js`). Colours of text are those of the page, so that nothing depends
on the theme. Imports no ipywidgets and no other room of the front end.
"""
