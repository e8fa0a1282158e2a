"""The schedules, a file for each family: (number of stages, B) -> the order of tasks on every submesh.

    one_f_one_b    GPipe, 1F1B, eager and interleaved 1F1B, ZB-H1
    v_shape        ZB-V, V-Half, V-Min: two stages on each submesh, down and back up; their weight halves, compiled
    dual_pipe      DualPipeV, and DualPipe with two copies of the model

They import `schedules.task`, `errors` and `numerics`.
"""
