"""The stages of one layering on one cluster.

    versions          what their backward pass may compute again
    stage_problems    which (layer range, submesh) can occur in a pipeline, their sharding problems, keys by which equal
                      ones are solved once, and their costs before anything is priced
    tied_weights      weights that several layers read
    candidates        `Candidates`: from the books of problems to the candidates of stages; `Choices`: from a
                      candidate back to the strategy of every operator

Nothing here solves a problem or calls the pipeline DP.
"""
