"""Several plans, settings or solvers beside each other, a figure a file.

microbatches   T, throughput and memory over the number of microbatches
why            where the time of an iteration goes, what limits it, and what single changes would save
compare        two plans: latency of the stages, headline figures, and operators that are cut differently
compare_words  the same in words and rows
search         all plans that were tried: throughput against memory, with the Pareto frontier
search_points  its points: plans that are nearly equal are one
baselines      the automatic plan beside data parallelism, ZeRO-3, Megatron and others
solvers        formulations of one sharding problem: seconds, and gap above the optimum

Imports keys, marks, placing, style and tuning of the package above; not decisions, runs or the page.
"""
