"""Coding tasks: a student writes a function, and a check runs it beside a simulator, a closed form or brute force.

task     a task, read from `tasks/NAME.toml`: statement, code to begin with, a right and three wrong solutions
checks   what a right function does, for each task; the first difference is said
designs  open tasks: choices of layouts, graded by their regret on measured runs
lockstep    devices that run a function together, and the collectives that they ask for
sandbox  a process that runs one solution, with a time limit, and says what its check found

A solution runs only where a student hands it to `task(name, solution)`, in a process of its own: nothing here reads
code from a file of someone else.
"""
