"""Graphs that follow from a few captures: at another batch size, or with more repeated blocks.

    rescale   the graph at another batch size, from captures at two sizes
    unroll    the graph with more periods of blocks, from captures with 2 and with 4

Both check that the captures determine the result and refuse otherwise; they do not import each other.
"""
