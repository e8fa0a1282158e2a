"""The parts of the explorer's screen, one a file; each shows a part of the state and nothing else."""
