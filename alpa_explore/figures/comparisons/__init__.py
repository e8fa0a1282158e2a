"""Several plans, settings or solvers beside each other, a figure a file.

microbatches   T, throughput and memory over the number of microbatches
why            where the time of an iteration goes, what limits it, and what single changes would save
compare        two plans: their stages, operators that are sharded differently, time and headline figures
search         all plans that were tried: throughput against memory, with the Pareto frontier
baselines      the automatic plan beside data parallelism, ZeRO-3, Megatron and others
solvers        formulations of one sharding problem: seconds, and gap above the optimum

Imports keys, style, tuning and time_bars of the package above; not decisions, runs or the page.
"""
