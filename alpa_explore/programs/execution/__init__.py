"""Execute the instructions of a program.

Read in this order:

    optimizer_step   one optimizer step on a piece of a weight
    execute          what an instruction does on one rank, for any transport between ranks
    interpret        the reference interpreter: all ranks in one process
    rehearsal        every task once on tensors without memory: bytes and collectives of a task, peak of a rank

`execute` is shared by the interpreter and by the processes of the runtime, which differ only in the transport. This
room must not import `programs.lowering`, nor torch.distributed.
"""
