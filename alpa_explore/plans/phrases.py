"""How layers, submeshes, stages and logical meshes are named wherever people read about them."""

import re
from collections.abc import Mapping, Sequence

from alpa_explore import units
from alpa_explore.cluster import Cluster
from alpa_explore.cluster.precisions import RECIPES
from alpa_explore.plans.records import ModelSummary, PlanStage

_NOT_IN_NAMES = re.compile(r"[^\w.-]")


def run_of_layers(layers: Sequence[int]) -> str:
    """(0, 2) -> '0–2'; (3, 3) -> '3'."""
    first, last = layers
    return str(first) if first == last else f"{first}–{last}"


def layers_phrase(layers: Sequence[int]) -> str:
    """(0, 2) -> 'layers 0–2'; (3, 3) -> 'layer 3'."""
    return f"layer{'' if layers[0] == layers[1] else 's'} {run_of_layers(layers)}"


def submesh_phrase(submesh: Sequence[int], device: str = "") -> str:
    """(1, 8) -> '1×8': n nodes × m devices of each; with the name of the devices of unlike nodes '1×8 h100'."""
    # A name may come from a stranger's plan file, and this text stands in HTML.
    name = _NOT_IN_NAMES.sub("?", device)
    return f"{units.shape(submesh)} {name}" if name else units.shape(submesh)


def on_submesh(layers: Sequence[int], submesh: Sequence[int], device: str = "") -> str:
    """((0, 1), (1, 8)) -> 'layers 0–1 on 1×8': a range of layers and its submesh (`submesh_phrase`)."""
    return f"{layers_phrase(layers)} on {submesh_phrase(submesh, device)}"


def stage_phrase(stage: PlanStage) -> str:
    """'stage 0: layers 0–1 on 1×8': how a stage is named wherever people read about it."""
    return f"stage {stage.index}: {on_submesh(stage.layers, stage.submesh, stage.device)}"


def logical_mesh_phrase(shape: Sequence[int]) -> str:
    """(2, 4) -> 'logical mesh 2×4': never 'mesh 2×4', which reads like a submesh."""
    return f"logical mesh {units.shape(shape)}"


def layout_phrase(degrees: Mapping[str, int], *more: str) -> str:
    """({'TP': 2, 'PP': 1}, 'ZeRO-1') -> 'TP 2 · ZeRO-1': the degrees of more than 1, and what else there is to say."""
    named = [f"{name} {degree}" for name, degree in degrees.items() if degree > 1]
    return " · ".join([*named, *filter(None, more)])


def precision_phrase(model: ModelSummary, cluster: Cluster) -> str:
    """'bfloat16', or 'bfloat16, linear layers priced in FP8, optimizer states in 8-bit': a program computes in the
    dtype of tensors, and keeps states in float32."""
    recipe, states = cluster.software.low_precision, cluster.software.states
    lower = f", linear layers priced in {RECIPES[recipe].label}" if recipe else ""
    return f"{model.precision}{lower}" + (f", optimizer states in {states}" if states != "float32" else "")


def ranges(numbers: Sequence[int]) -> str:
    """(0, 1, 2, 5) -> '0–2, 5'."""
    runs: list[tuple[int, int]] = []
    for n in sorted(numbers):
        if runs and runs[-1][1] == n - 1:
            runs[-1] = (runs[-1][0], n)
        else:
            runs.append((n, n))
    return ", ".join(run_of_layers(run) for run in runs)
