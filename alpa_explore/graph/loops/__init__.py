"""Loops over the positions of a sequence: as the body of one operator, or unrolled.

    body        the operators of a step of torch's scan, as text inside an argument of the operator
    unrolled    loops of Python in a model, of which every turn is captured

They import `graph.operator` and `graph.tensor`.
"""
