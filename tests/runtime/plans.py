"""A small plan, for one machine and for two."""

import alpa_explore as ax


def small_plan(devices=2, num_microbatches=2):
    """An MLP on a pipeline of one CPU a stage."""
    return ax.baseline(
        "mlp-tiny",
        f"1x{devices}:cpu",
        "inter-only",
        num_microbatches=num_microbatches,
        num_layers=devices,
        delta=1.0,
        precision="float32",
    )


def two_machines():
    """The same plan as `small_plan()`, on two machines of one CPU."""
    return ax.baseline(
        "mlp-tiny", "2x1:cpu", "inter-only", num_microbatches=2, num_layers=2, delta=1.0, precision="float32"
    )
