"""Graphs that follow from a few captures: at other sizes, or with more repeated blocks.

    rescale   the graph at another batch size, from captures at two sizes
    unroll    the graph with more periods of blocks, from captures with few
    fewer_blocks   a model with fewer of its equal blocks, for those captures; the kinds of blocks of a model, and the
                   model with one or two of each

`rescale` and `unroll` check that the captures determine the result and refuse otherwise; they do not import each other.
"""
