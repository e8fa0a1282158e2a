"""Measured training runs: from a CSV file to rows whose model, batch, machine and layout are complete and agree.

columns        cells of a file -> values, for the common columns and for those of vTrain
refusals       what is wrong with a run: missing, contradictory, impossible, or not modelled yet
rows           a file -> MeasuredRow or RefusedRow, line by line
machines       device, software and precision by the names that sources use
nearest        names that are not known, by the nearest that is, with a note
architecture   the model of a run: its sizes, config and FLOPs, its kind by its name
"""
