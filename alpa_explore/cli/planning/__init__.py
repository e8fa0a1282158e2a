"""Commands about plans, without running them.

    plan        plan a model on a cluster, by `planner.interface`
    show        print a plan file
    simulate    simulate the tasks of a plan file
    export      write a plan in the form of another tool, by `plans.export`
    report      several plans as one HTML page, by `figures.report_page`
    baselines   compare a plan with manual parallelism
    layouts     every uniform layout of a model on a cluster
    scale       where a model fits, by device and number of nodes
    from_layout  `plan --baseline`: a plan by hand; `--from-layout`: a plan that is never slower than a uniform layout
    predict     predict measured training runs, by `validation`, and score the predictions

Plans are printed by `plans.report`. A room of commands must not import another one.
"""
