"""Lower bounds on stages without a solve.

    lower_bounds    seconds of a stage, from the FLOPs and bytes of its operators
    least_bytes     bytes that a range of layers holds at least

It imports no solver and nothing else of `search`.
"""
