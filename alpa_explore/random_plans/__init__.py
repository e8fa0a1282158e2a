"""Random legal plans of tiny models, each compared with one process; a plan that differs is shrunk.

Read in this order:

    families   tiny models of every architecture of the catalogue, and some of what it lacks
    draft      what a random plan consists of: cuts, submeshes, schedule, and the specs of every operator
    tuning     how large plans are, and how hard a failing one is shrunk
    choose     a strategy for every node of a sharding problem: at random, by roles, or after a draft
    plan_maker draft -> `Plan`, with captured graphs and costs kept
    draw       a random draft for a seed and a number
    shrink     a draft is run by the interpreter, and compared; a failing draft -> a small one that still fails
    campaign   many drafts on forked processes, failures as plan files

The planner chooses optima, which exercise few of the strategies and reshardings that the rules allow. A random plan
takes any of them. Nothing is solved. This package must not import figures or the command line.

Concepts that others use: Campaign.
"""
