"""Checkpoints of a run: written in parts by its ranks, made whole by one process, read by ranks of any plan.

Read in this order:

    description   checkpoint.json and index.json: what they say, the checks of a stranger's, and the one that `resume=`
                  names
    layout        which rank holds and which one writes each box of the state
    stored        the file that one rank writes, and boxes read from such files
    keeper        make a checkpoint whole when all ranks have written, and keep the last two

A checkpoint is a folder `checkpoints/step-000010` of the run, taken when 10 steps are done:

    checkpoint.json   format, version, step, seed, learning rate, optimizer, data position, digests of model and plan,
                      the size and digest of every other file, and a digest of all this
    index.json        every tensor: shape, dtype, and where in which file each of its boxes is
    __3_0.distcp      the boxes that rank 3 wrote
    .metadata         for `torch.distributed.checkpoint.load`; nothing here reads it

Each rank copies its state to the memory of the host and goes on training, while a thread writes the copy below
`checkpoints/.step-000010.writing` and reports it, without waiting for others. It waits where the host has no room for a
copy, for the last checkpoint, behind which there is no training, and for one that was asked for. In runs that are
retried it begins none before the last one is whole, so that the loss of a host costs the steps of two at most. The
process that watches the run (for scripts: the first rank) renames the folder when the files of all ranks are there.
A crash at any time therefore leaves the checkpoint before it whole, and no shared folder is needed: whoever carries the
files to the launcher may do so at any time.

The state is weights, buffers and the state of the optimizer: moments, step counters, and the 32-bit master copies of
16-bit weights. The random state is the seed and the step. An operator that draws numbers seeds the generator just
before with a hash of (seed, step, microbatch, operator, place in its submesh); initial weights and made-up data depend
on the seed and on the number of the microbatch. No generator is ever read without being seeded, so none is stored. A
model with dropout draws other masks under a plan that divides it otherwise, as it would from the start.

Nothing is unpickled on resume. torch.distributed.checkpoint finds its boxes by `.metadata`, a pickle, which runs what
its author wrote; these modules read index.json, check it, and map the bytes of the boxes. They are where torch has put
them: an uncompressed entry of a zip archive, whose place the writing rank looks up.

This room must not import other modules of `runtime` but `folder` and `tuning`.
"""
