"""Measured training runs: from a CSV file to rows whose model, batch, machine and layout are complete and agree.

known_models   the kind of a model by its name, and what the columns leave open about models with experts
columns        cells of a file -> values, for the common columns and for those of vTrain
refusals       what is wrong with a run: missing, contradictory, impossible, or not modelled yet
rows           a file -> MeasuredRow or RefusedRow, line by line
machines, precisions   device, software and dtypes by the names that sources use
nearest        names that are not known, by the nearest that is, with a note
architecture   a decoder by its sizes: its config, its products and FLOPs
"""
