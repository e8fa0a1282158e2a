"""Capture: a PyTorch model and one microbatch of example inputs -> the TrainingGraph of one training step.

All tensors are fake, so a model of any size takes no memory. The steps: fake parameters (`inputs.fake_model`); model
and loss traced as one function (`inputs`, `joint_graph`); nodes to drafts of operators, phases, numbered tensors and
operators with the parameter updates after them (`operators`).

Attention is one operator, forward and backward (`tracing.attention`), where the model calls torch's function for it; a
model that spells it out is captured as written, and its plans say so.

A model is captured in its current mode: in training mode with dropout, in eval mode without. What the forward pass
writes into buffers (running statistics of batch norm) is not part of the graph: no loss, gradient or plan depends on
it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch._subclasses import FakeTensorMode

from alpa_explore.cluster.precisions import LOW_PRECISIONS, recipe_of
from alpa_explore.errors import CancelledError, CaptureError, OptionError, nearest_names
from alpa_explore.graph import PRECISIONS, TrainingGraph, full_precision, verify
from alpa_explore.numerics.collection import no_collection
from alpa_explore.tracing.cancelling import stop_if_cancelled
from alpa_explore.tracing.inputs.example import Example, flatten_example
from alpa_explore.tracing.inputs.fake_model import ModelTensor, attribute_tensors, fake_like, installed, model_tensors
from alpa_explore.tracing.inputs.losses import Loss, scalar_loss
from alpa_explore.tracing.inputs.onnx_file import load_onnx
from alpa_explore.tracing.joint_graph.diagnose import diagnose
from alpa_explore.tracing.joint_graph.locate import AnnotateCalls, TracePosition, follow_modules
from alpa_explore.tracing.joint_graph.trace import JointGraph, trace
from alpa_explore.tracing.operators.assemble import assemble
from alpa_explore.tracing.operators.drafting import draft
from alpa_explore.tracing.operators.phases import assign_phases
from alpa_explore.tracing.operators.sharing import share
from alpa_explore.tracing.optimizers import find_optimizer


def capture(
    model: nn.Module | str | os.PathLike[str],
    example_inputs: tuple[Any, ...] | Mapping[str, Any] | torch.Tensor,
    loss: Loss = None,
    optimizer: str = "adam",
    precision: str | None = None,
    rematerialization: bool = False,
    name: str | None = None,
    recipe: str | None = None,
) -> TrainingGraph:
    """The training step of `model` on one microbatch, as a graph.

    `example_inputs` are one microbatch: a tuple of positional inputs or a dict of keyword inputs (real, meta or fake
    tensors; values are not read). Without `loss` the model must return its loss; with one, the last inputs are its
    targets (`inputs.losses`). `optimizer` is 'adam', 'adamw', 'sgd' or 'sgd_momentum'. `precision` is the dtype that
    floating weights, buffers and inputs are converted to; None keeps theirs. `recipe` describes how to rebuild the
    model and is only stored. The model is not changed; it may also be the path of an ONNX file.

    Raises CaptureError, with operator, module and line, if the model cannot be traced.
    """
    module, module_name = _module(model)
    chosen = find_optimizer(optimizer)
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    dtype = _dtype(precision)
    held = model_tensors(module, mode, dtype)
    if not any(tensor.trainable for tensor in held):
        raise CaptureError(
            "The model has no trainable parameter",
            found=f"{len(held)} parameters and buffers, none of which requires a gradient",
            remedy="Call model.requires_grad_(True), or capture a model that has parameters.",
        )
    example = flatten_example(module, example_inputs, loss)
    place = TracePosition()
    with torch.enable_grad(), no_collection():
        joint = _trace(module, held, example, loss, mode, dtype, place)
        stop_if_cancelled()
        drafts = draft(joint)
        loss_key = drafts.key(joint.loss)
        gradients = [None if node is None else drafts.key(node) for node in joint.gradients]
        results = [loss_key, *(g for g in gradients if g is not None)]
        phases = share(drafts, assign_phases(joint, drafts, loss_key, results[1:]), frozenset(results))
        graph = assemble(
            name=name or module_name,
            held=held,
            example=example,
            joint=joint,
            drafts=drafts,
            phases=phases,
            loss=loss_key,
            gradients=gradients,
            optimizer=chosen,
            rematerialization=rematerialization,
            recipe=recipe,
            attributes=attribute_tensors(module),
            training=module.training,
        )
    return verify(graph)


def _module(model: nn.Module | str | os.PathLike[str]) -> tuple[nn.Module, str]:
    """The module to trace and its default name; CaptureError for anything but a module or an ONNX file."""
    if isinstance(model, str | os.PathLike) and Path(model).suffix == ".onnx":
        return load_onnx(model), Path(model).stem
    if not isinstance(model, nn.Module):
        raise CaptureError(
            "The model is not a torch module",
            found=type(model).__name__,
            remedy="Pass a torch.nn.Module, or the path of an .onnx file.",
        )
    module: nn.Module = getattr(model, "_orig_mod", model)  # the module that torch.compile wraps
    return module, type(module).__name__


def _dtype(precision: str | None) -> torch.dtype | None:
    if precision is None:
        return None
    precision = full_precision(precision)
    if precision not in PRECISIONS:
        if recipe_of(precision):
            raise OptionError(
                "A model is captured in the dtype of its tensors",
                found=f"precision={precision!r}, which is one of products",
                remedy="Capture it in bfloat16, and give this precision to ax.plan.",
            )
        known = (*PRECISIONS, *LOW_PRECISIONS)
        raise OptionError("Unknown precision", found=repr(precision), remedy=nearest_names(str(precision), known))
    dtype: torch.dtype = getattr(torch, precision)
    return dtype


def _trace(
    model: nn.Module,
    held: tuple[ModelTensor, ...],
    example: Example,
    loss: Loss,
    mode: FakeTensorMode,
    dtype: torch.dtype | None,
    place: TracePosition,
) -> JointGraph:
    inputs = [fake_like(tensor, mode, dtype) for tensor in example.tensors]

    def run(tensors: Any) -> torch.Tensor:
        place.modules.clear()
        call = example.rebuild(tensors[len(held) :])
        with installed(held, tensors[: len(held)]), follow_modules(model, place), AnnotateCalls(place):
            output = model(*call.arguments, **call.keywords)
            place.modules.clear()
            result = scalar_loss(output, call.targets, loss)
        place.function = "of the backward pass"
        return result

    try:
        return trace(run, [*(tensor.fake for tensor in held), *inputs])
    except (CaptureError, CancelledError):
        raise
    except Exception as error:  # whatever the model's code may raise
        raise diagnose(error, place) from error
