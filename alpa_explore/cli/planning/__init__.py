"""Commands about plans, without running them.

    plan        plan a model on a cluster; `write`, which writes plan files and pages, is used by the others
    show        print a plan file
    simulate    simulate the tasks of a plan file
    baselines   compare a plan with manual parallelism
    predict     predict the times of Megatron layouts

Plans are made by `planner`, and printed by `plans.report`. A room of commands must not import another one.
"""
