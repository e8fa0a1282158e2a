"""Figures of uniform layouts.

scatter        every layout of a model on a cluster: time against memory
scaling_curve  the best layout on each of several devices and numbers of nodes
"""
