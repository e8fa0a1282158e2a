"""A plan in the form of other tools. `export(plan, target)` is the verb; a target is one file.

    degrees             plan -> degrees, batch, recomputation, …, and the limits of such a form; the first step of all
    exported            what an export is: text, degrees and limits; the comment at its top; what PyTorch's share
    megatron            a shell script for Megatron-LM; the settings of Megatron-Core
    nemo                a Python config for Megatron-Bridge
    torchtitan          a Python config
    fsdp2               PyTorch code that trains (fsdp2_code.txt)
    torch_code          the DTensor placements of all tensors, as the plan has them

An export reads a `PlanValue` and returns text. It imports `report` for names and phrases, never `file`. The names of
other tools are checked against tests/plans/export/names/, which says their versions. To add a target: a file with one
function `PlanValue -> Exported`, its name in `export`, its names of arguments in the tests.
"""
