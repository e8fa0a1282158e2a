"""The schedules, one file each: (number of stages, B) -> the order of tasks on every submesh.

    gpipe         all forward passes, then all backward passes
    one_f_one_b   1F1B and eager 1F1B
    interleaved   interleaved 1F1B: several stages on each submesh
    zero_bubble   ZB-H1: the backward pass in two halves

They import `schedules.task` and `errors`, not each other.
"""
