"""Measured training runs: from a CSV file to rows whose model, batch, machine and layout are complete and agree.

refusals       cells of a file -> values, and what is wrong with a run: missing, contradictory, impossible, not modelled
rows           a file -> MeasuredRow or RefusedRow, line by line
machines       device, software and precision by the names that sources use
nearest        names that are not known, by the nearest that is, with a note
architecture   the model of a run: its sizes, config and FLOPs, its kind by its name
"""
