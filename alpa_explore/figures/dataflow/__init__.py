"""A stage as a graph: its operators in the order of the data, folded by block, with collectives on the edges.

stage_dataflow   the graph as a value (nodes, edges, groups), its sentence, the blocks of the model
wiring           which operator reads what from which, and the collectives on the way
document         the graph as JSON for the page that lays it out and draws it

Imports keys, style and tuning of the package above, and no plotly: a page draws it, not a figure.
"""
