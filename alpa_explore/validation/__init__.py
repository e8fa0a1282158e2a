"""Validation: the cost model held against measured training runs. A file of runs in, predictions and their errors out.

In the order to read them:

    architecture   the model of a run from its architecture columns: config, parameters, FLOPs
    columns        cells of a file -> values, for the columns of the measured files and for those of vTrain
    refusals       what is wrong with a run: missing, contradictory, or not modelled yet
    rows           a file -> MeasuredRow or RefusedRow, line by line
    stages         the blocks of each pipeline stage, as each framework divides them
    machines       device and software of a run, by name
    split          which configurations are fitted and which are held out
    predict        rows -> predicted seconds and bytes, in two processes
    score          errors, bias, order, regret, memory, fits against failed, by source and group

It imports `baselines` and what is below it; `cli` and `figures` use it.
"""
