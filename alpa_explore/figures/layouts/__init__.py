"""Figures of uniform layouts.

heat_map       every layout of a model on a cluster by two of its degrees, the best of the rest in each cell
scaling_curve  the best layout on each of several devices and numbers of nodes
"""
