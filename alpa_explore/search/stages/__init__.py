"""Which stages there are and what they have in common.

`feasible_stages`, their problems and empty costs (`stage_problems`), keys of equal problems (`problem_keys`), weights
that several layers read (`tied_weights`), candidates from frontiers (`candidates`). Nothing here solves or asks the
pipeline DP.
"""
