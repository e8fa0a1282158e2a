"""The exercises of the course: modules with what the exercises of some lessons are computed from, and beside each a
file with the exercises themselves.

basics      lessons 00 to 03: the tour, capture, the cluster, collectives
layering, sharding, formulations, pipeline  04 to 07: how a model, a cluster and their costs become a plan
schedules, memory, attention, experts       08 to 11: what a plan does
practice    12 to 14: running, accuracy, a model of one's own
layouts     15 to 17: a block on eight devices, what is hidden, which layout

A module imports what it needs of the library; modules do not import each other. What several need is `course.examples`.
"""
