"""Several plans, settings or solvers beside each other, a figure a file.

microbatches   T, throughput and memory over the number of microbatches
why            where the time of an iteration goes, what limits it, and what single changes would save
compare        two plans: latency of the stages, headline figures, and what is cut differently; words and rows
search         all plans that were tried: throughput against memory, with the frontier; nearly equal plans are one point
effort         what the planner did for one plan: stages, sharding problems, candidates for t_max, seconds
baselines      the automatic plan beside data parallelism, ZeRO-3, Megatron and others
solvers        formulations of one sharding problem: seconds, and gap above the optimum

Imports keys, marks, style and tuning of the package above; not decisions, runs or the page.
"""
