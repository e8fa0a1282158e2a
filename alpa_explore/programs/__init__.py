"""A plan as a program: the instructions of every rank, checked statically, and executed by a reference interpreter.

Read in this order:

    program       the instructions: load, compute, collective, send, receive, …; values and boxes; a program:
                  instructions per stage, action and rank, with a schedule that orders the tasks
    lowering/     from the decisions of a plan to a program
    check         static checks: values, messages, deadlocks
    execution/    what an instruction does on a rank; the interpreter; rehearsals for memory
    text          the instructions of a rank as lines

The proof of a program is that `interpret(lower(plan))` equals the sequential graph: the loss, every gradient and every
updated weight. The runtime executes the same instructions with the same code on processes (`runtime`). `lowering` and
`execution` do not import each other. This package must not import the runtime, figures or the command line.

Concepts that others use: Arriving, Box, Boxes, Collective, CollectiveCall, Compute, Count, Instruction, Lasting, Load,
Memory, Optimize, PieceOptimizer, Program, RankExecutor, Receive, Send, StageDecision, Values.
"""
