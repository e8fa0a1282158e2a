"""Which stages there are: the feasible ones (`feasible_stages`), their problems and empty costs (`stage_problems`), keys
of equal problems (`problem_keys`), weights they share (`tied_weights`), candidates from frontiers (`candidates`).

Nothing here solves or asks the pipeline DP.
"""
