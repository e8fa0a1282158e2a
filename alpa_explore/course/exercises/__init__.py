"""The exercises of the course: one module a lesson, whose `EXERCISES` are in the order of their ids, and beside it
their texts.

planning  lessons 00 to 07: how a model, a cluster and their costs become a plan
training  lessons 08 to 17: what a plan does: schedules, memory, attention, experts, runs, and how far to trust it

A file imports what it needs of the library; files do not import each other. What several need is `course.sharing`.
"""
