"""What one plan decided, a figure a file.

layers         forward operators in order, their FLOPs, and the bytes that a cut behind each of them would send
cluster        devices as a grid: the stage of each, and what fills its memory
t_max          the sweep over t_max: T and its two terms for each candidate
stage_costs    latency of each range of layers on each submesh (stage_cost_grid lays the panels out, and colours them)
operator_rows  which operators of a stage are shown, and which share a row; used by sharding
sharding       sharding spec, compute and communication time of each operator of a stage
frontier       latency against memory of a stage

The rows of the tables, from which figures are drawn, are in `plans.report.tables`. Imports keys, marks, style and
tuning of the package above; not the other rooms, nor the page.
"""
