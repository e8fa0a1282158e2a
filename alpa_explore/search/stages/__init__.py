"""The stages of one layering on one cluster.

    feasible_stages   which (layer range, submesh) can occur in a pipeline
    versions          what their backward pass may compute again
    stage_problems    their sharding problems, and their costs before anything is priced
    problem_keys      keys by which stages with equal problems are solved once
    tied_weights      weights that several layers read
    candidates        `Candidates`: from the books of problems to the candidates of stages; `Choices`: from a
                      candidate back to the strategy of every operator

Nothing here solves a problem or calls the pipeline DP.
"""
