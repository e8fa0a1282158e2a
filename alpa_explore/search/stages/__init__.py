"""Which stages there are: the feasible ones, keys of equal problems, their candidates, the weights they share.

Read `feasible_stages`, then `problem_keys`, `candidates`, `tied_weights`. Nothing here solves or asks the pipeline DP.
"""
