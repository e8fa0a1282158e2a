"""The schedules, one file each: (number of stages, B) -> the order of tasks on every submesh.

    gpipe          all forward passes, then all backward passes
    one_f_one_b    1F1B and eager 1F1B
    interleaved    interleaved 1F1B: several stages on each submesh
    zero_bubble    ZB-H1: the backward pass in two halves
    v_shape        ZB-V, V-Half, V-Min: two stages on each submesh, down and back up
    weight_halves  where their weight halves run, compiled
    dual_pipe      DualPipeV, and DualPipe with two copies of the model

They import `schedules.task`, `errors` and `numerics`; only `v_shape` imports another, its kernel.
"""
