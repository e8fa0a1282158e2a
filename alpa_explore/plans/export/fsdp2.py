"""A plan as PyTorch training code: DTensor, FSDP2, context parallelism, torch.distributed.pipelining.

The code runs: under torchrun on CPU (gloo) or CUDA (nccl), for models of the catalogue as it is, for others after its
functions for embedding, block and head are written. `torch_code` is the other export for PyTorch: the placements of
all tensors, as the plan has them, without a training loop.

Which modules are divided over tensor parallel devices is read from the specs of their weights: columns are dim 0 of a
linear layer, rows dim 1. The layers of one parent (q, k, v and projection of attention; up and down of an MLP) must be
columns and then rows, so that what is between them stays divided; else the parent stays whole.
"""

import pprint
from dataclasses import dataclass, replace
from importlib.resources import files

from alpa_explore.models.catalog import entry, is_reference
from alpa_explore.models.configs import DecoderConfig, GPTConfig
from alpa_explore.plans.export.degrees import Limits, PlanDegrees, PricedAgain, all_blocks, block_of, plan_degrees
from alpa_explore.plans.export.exported import Exported, heading, note_shards, torch_schedule
from alpa_explore.plans.report.parallelism import axis_uses
from alpa_explore.plans.value import PlanValue
from alpa_explore.sharding.spec import read_spec

_HEAD_WEIGHT = '''

def head_weight(model):
    """The weight that makes scores of the vocabulary."""
    return {weight}
'''
_PARTS = '''

def make_model():
    """The model, alike on every rank."""
    {model}


def embed(model, tokens):
    """What enters the first block."""
    return {embed}


def apply_block(model, block, x, positions):
    """One block; `positions` are those of the sequence that this rank has."""
    return {block}


def last_norm(model, x):
    """What the head reads."""
    return {norm}
'''


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """How a family of models is cut."""

    list: str = "h"
    first: tuple[str, ...] = ("tokens",)
    last: tuple[str, ...] = ("final_norm", "head")
    embedding: str = "tokens"
    """The module of the token embedding, whose weight a tied head reads."""
    embed: str = "model.tokens(tokens)"
    block: str
    norm: str = "model.final_norm(x)"
    weight: str = "model.head.weight"
    tied_weight: str = "model.tokens.weight"
    head: str = "head"
    sequence_parallel: bool = True
    """Whether what the embedding returns can be a shard of the sequence."""
    attention: bool = True
    """Whether attention takes its number of heads from its input, so that a device can have some of them."""
    context: bool = True
    """Whether attention is `F.scaled_dot_product_attention` and positions are read from a table."""


_ROTARY = "model.cosines[positions], model.sines[positions]"
FAMILIES = {
    "decoder": Parts(block=f"block(x, ({_ROTARY}))"),
    "gpt": Parts(
        first=("embedding",),
        last=("final_norm",),
        embedding="embedding.tokens",
        embed="model.embedding(tokens)",
        block="block(x, model.mask[positions][:, positions])",
        tied_weight="model.embedding.tokens.weight",
        sequence_parallel=False,
        attention=False,
        context=False,
    ),
}
"""Families of the catalogue."""
UNKNOWN = Parts(
    block="block(x)",
    embed="NotImplemented  # write: model.…(tokens)",
    norm="NotImplemented  # write: model.…(x)",
    attention=False,
    context=False,
    sequence_parallel=False,
)
"""A model from outside the catalogue: the user writes the functions."""


def parts_source(parts: Parts, recipe: str | None, *, tied: bool) -> str:
    """The functions that the code calls, as Python source."""
    if recipe is None:
        model = 'raise NotImplementedError("Make your model here.")'
    else:
        model = "from alpa_explore.models.catalog import build\n\n    "
        model += f'return build({recipe!r}, 1, device="cpu", seed=0)[0]'
    functions = _PARTS.format(model=model, embed=parts.embed, block=parts.block, norm=parts.norm)
    return functions + _HEAD_WEIGHT.format(weight=parts.tied_weight if tied else parts.weight)


_USAGE = (
    "Start it with torchrun on all devices; `main` trains some steps on random tokens. In your own loop: "
    "`run = setup(model, LENGTH, device_type)`, then `loss = step(run, tokens, targets)` with the global batch, then "
    "your optimizer's step.",
)
_IMPORTS = """
import copy
import os
from dataclasses import dataclass

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.pipelining import PipelineStage
from torch.distributed.pipelining.schedules import PipelineScheduleMulti, get_schedule_class
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)

"""
_STYLES: dict[tuple[int, ...], str] = {(0,): "columns", (1,): "rows"}
"""Divided dims of the weight of a linear layer, (out, in) -> its style."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Model:
    """What the code has to know of a model."""

    recipe: str | None
    parts: Parts
    tied: bool
    vocabulary: int
    key_heads: int


def fsdp2(plan: PlanValue, again: PricedAgain | None = None) -> Exported:
    """The Python file. OptionError where the plan has no strategies."""
    degrees = plan_degrees(plan, again)
    limits = Limits(degrees.limits)
    model = _model(plan, limits)
    tensor, whole = _divided_modules(plan, degrees, model)
    sequence = degrees.sequence_parallel and model.parts.sequence_parallel and not whole
    if degrees.tensor > 1:
        _of_tensors(degrees, whole, limits, sequence=sequence)
    if not sequence:
        tensor = {name: style for name, style in tensor.items() if style != "sequence"}
    constants = _constants(plan, degrees, model, limits)
    constants |= {"SEQUENCE_PARALLEL": sequence, "TENSOR": tensor}
    text = "".join(
        [
            heading(plan, "PyTorch (DTensor, FSDP2, pipelining)", _USAGE, limits, again),
            _IMPORTS,
            *(_written(name, value) for name, value in constants.items()),
            parts_source(model.parts, model.recipe, tied=model.tied),
            (files(__package__) / "fsdp2_code.txt").read_text(encoding="utf-8"),
        ]
    )
    return Exported(target="fsdp2", text=text, ending="py", degrees=degrees, limits=tuple(limits))


def _model(plan: PlanValue, limits: Limits) -> _Model:
    recipe = plan.model.recipe
    config = entry(recipe).config if recipe is not None and is_reference(recipe) else None
    if isinstance(config, DecoderConfig):
        parts = replace(FAMILIES["decoder"], attention=config.latent is None and not config.fused_projections)
        return _Model(
            recipe=recipe, parts=parts, tied=config.tied, vocabulary=config.vocabulary, key_heads=config.kv_heads
        )
    if isinstance(config, GPTConfig) and config.attention != "fused":
        parts = FAMILIES["gpt"]
        return _Model(recipe=recipe, parts=parts, tied=True, vocabulary=config.vocabulary, key_heads=config.heads)
    limits.note("The model's own code", "make_model, embed, apply_block, last_norm and head_weight are yours")
    return _Model(recipe=None, parts=UNKNOWN, tied=False, vocabulary=0, key_heads=0)


def _constants(plan: PlanValue, degrees: PlanDegrees, model: _Model, limits: Limits) -> dict[str, object]:
    replicate, shard = degrees.data * degrees.context, 1
    if degrees.zero_stage:
        replicate, shard = degrees.replicas, degrees.shards * degrees.context
    note_shards(degrees, limits)
    if degrees.expert > 1:
        limits.note(f"Experts divided among {degrees.expert} devices", "every device runs all of them")
    if degrees.context > 1:
        if degrees.exchange != "all-gather":
            limits.note(
                f"Context parallelism by {degrees.exchange}",
                "keys and values are gathered: the same result with other traffic",
            )
        if not model.parts.context:
            limits.note("Context parallelism", "attention of this model must be divided by hand")
    if degrees.low_precision:
        limits.note("Products in low precision", degrees.precision)
    return {
        "PIPELINE": degrees.pipeline,
        "DATA": degrees.data,
        "CONTEXT": degrees.context,
        "TENSOR_DEGREE": degrees.tensor,
        "REPLICATE": replicate,
        "SHARD": shard,
        "RESHARD_AFTER_FORWARD": degrees.zero_stage == 3,
        "MICROBATCHES": degrees.microbatches,
        "MICROBATCH": degrees.microbatch,
        "SCHEDULE": torch_schedule(degrees, limits),
        "ZIGZAG": degrees.zigzag,
        "PRECISION": degrees.precision,
        "LENGTH": degrees.sequence,
        "VOCABULARY": model.vocabulary,
        "TIED": model.tied,
        "LIST": model.parts.list,
        "FIRST_PARTS": model.parts.first,
        "LAST_PARTS": (*model.parts.last, *(model.parts.first if model.tied else ())),
        "BLOCKS": _runs(plan, degrees),
        "RECOMPUTED": _recomputed(plan, degrees, limits),
    }


def _runs(plan: PlanValue, degrees: PlanDegrees) -> list[list[int]]:
    """The blocks of each run: the plan's, or equally many."""
    if degrees.blocks:
        return [list(run) for run in degrees.blocks]
    blocks, runs = all_blocks(plan.stages), degrees.pipeline * degrees.chunks
    return [blocks[len(blocks) * run // runs : len(blocks) * (run + 1) // runs] for run in range(runs)]


def _recomputed(plan: PlanValue, degrees: PlanDegrees, limits: Limits) -> list[int]:
    name, blocks = degrees.recomputation, all_blocks(plan.stages)
    if name == "none":
        return []
    if name == "half":
        return blocks[::2]
    if name == "layers":
        found = {
            block_of(o.module)
            for stage in plan.stages
            for o in stage.operators
            if o.phase == "forward" and o.layer in stage.rematerialized
        }
        return sorted(block for block in found if block is not None)
    if name != "full":
        limits.note(f"Recomputation of {name}", "whole blocks are recomputed")
    return blocks


def _divided_modules(plan: PlanValue, degrees: PlanDegrees, model: _Model) -> tuple[dict[str, str], tuple[str, ...]]:
    """Module -> its style; and the names of parents whose layers stay whole though the plan divides them."""
    if degrees.tensor == 1:
        return {}, ()
    styles: dict[str, str] = {}
    whole: list[str] = []
    for stage in plan.stages:
        found, left = _of_stage(plan, stage.index, model, degrees.tensor)
        styles |= found
        whole += left
    return styles, tuple(whole)


def _of_stage(plan: PlanValue, number: int, model: _Model, degree: int) -> tuple[dict[str, str], list[str]]:
    stage = plan.stages[number]
    axes = {use.axis for use in axis_uses(stage) if use.kind == "tensor"}
    weights = {t.name: read_spec(t.spec).dims for t in stage.tensors if t.role == "weight"}
    order = {name: place for place, o in enumerate(stage.operators) for name in o.input_names if name in weights}
    styles: dict[str, str] = {}
    parents: dict[str, list[tuple[int, str, str]]] = {}
    for name, dims in weights.items():
        module, _, kind = name.rpartition(".")
        parent = module.rpartition(".")[0]
        divided = [dim for dim, dividing in enumerate(dims) if axes & set(dividing)]
        if kind == "bias" or (not parent and kind != "weight"):
            continue  # it goes with its layer, or is part of the embedding
        if module == model.parts.embedding:
            if divided == [0]:
                styles[module] = "vocabulary"
        elif module == model.parts.head:
            if divided == [0]:
                styles[module] = "columns"
        elif kind == "weight" and len(dims) == 1 and parent.count(".") <= 1 and parent not in parents:
            styles[module] = "sequence"
        else:
            style = _STYLES.get(tuple(divided), "") if kind == "weight" and len(dims) == 2 else ""
            parents.setdefault(parent, []).append((order.get(name, 0), module, style))
    whole = []
    for parent, layers in parents.items():
        names = [style for _, _, style in sorted(layers)]
        fits = names[-1:] == ["rows"] and set(names[:-1]) == {"columns"}
        if "attention" in parent.rpartition(".")[2]:
            fits = fits and model.parts.attention and model.key_heads % degree == 0
        if fits:
            styles |= {module: style for _, module, style in layers}
        else:
            whole.append(parent)
    if not any(style == "vocabulary" for style in styles.values()) and number == 0:
        whole.append(model.parts.embedding)
    return styles, whole


def _of_tensors(degrees: PlanDegrees, whole: tuple[str, ...], limits: Limits, *, sequence: bool) -> None:
    if whole:
        named = ", ".join(whole[:3]) + (f" and {len(whole) - 3} more" if len(whole) > 3 else "")
        limits.note(f"How {named} are divided among tensor parallel devices", "each device has them whole")
    if degrees.sequence_parallel and not sequence:
        limits.note("Sequence parallelism", "norms run on whole sequences on every device")


def _written(name: str, value: object) -> str:
    return f"{name} = {pprint.pformat(value, width=108, compact=not isinstance(value, dict), sort_dicts=False)}\n"
