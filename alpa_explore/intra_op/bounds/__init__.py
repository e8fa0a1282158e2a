"""Dual bounds and good choices without an ILP: to prove an answer, or to prune strategies of no optimal choice.

    message_kernels   the compiled inner loops of descent and message passing, and the flat arrays that they read
    messages          Messages: message passing, its lower bound, and the slack of every strategy; `descend`: coordinate
                      descent to a good choice, without a proof; `is_legal`; `prune_by_bound`: messages until they stop
                      improving, then pruning by slack
    tuning            rounds, gaps and sizes at which a method stops

A bound here holds for the whole problem at any moment, so every loop may stop early. Imports `problem` and
`numerics`; an ILP is what remains when this room is done, and stands above it.
"""
