"""Predicted seconds and bytes of operators and reshardings on one logical mesh. The docstrings are the formulas.

In the order to read them:

    collectives   one collective along one mesh axis, alpha-beta model of ring algorithms; a send between stages
    compute       one kernel on one device: roofline with launch cost and size-dependent efficiency
    group_collectives  one collective among devices that may span nodes: rings, trees, reduction in the switches
    kernels       the kernel that one device runs for an operator: its kind, local sizes, FLOPs, bytes
    fusion        which operators run as one kernel, and the bytes that it moves; which products run as one
    plain_kernels  attention, convolutions, experts and norms as plain PyTorch runs them; optimizer steps and states
    work          what a part of the model does in a microbatch: kernels, collectives, launches; no seconds
    stage         seconds of a stage (what hides behind what) and bytes of a device, from their parts
    kernel_seconds  seconds of many kernels at once: products by tiles and waves, attention, memory traffic
    measured      kernels that were timed on the device, in place of the formulas
    tuning        constants of these formulas
    resharding    the cheapest sequence of collectives between any two specs of a tensor
    model         CostModel: the strategies of an operator with their seconds, on one mesh

The planner, the baselines and the explorer all take their figures from here. It imports `sharding`, `cluster`, `graph`
and `units`; it must not import `intra_op` or anything above, nor torch.

Concepts that others use: CollectiveCall, CostModel, Kernel, KernelKind, KernelTable, OnceParts, PartWork,
PassParts, PassWork, PricedOperator, Recomputed, ReshardTable, StageBytes.
"""
