"""A block, and several in sequence, as the work of one device."""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce

from alpa_explore.cost.blocks.attention import add_attention
from alpa_explore.cost.blocks.experts import add_experts, add_gated
from alpa_explore.cost.blocks.shapes import BlockShape
from alpa_explore.cost.blocks.sheet import ELEMENT, Sheet, in_sequence
from alpa_explore.cost.work import PartWork


@dataclass(frozen=True, slots=True, kw_only=True)
class Division:
    """How a microbatch and a block are divided among devices."""

    samples: int
    """Of a microbatch."""
    length: int
    """Positions of the sequence that a context-parallel device has."""
    tensor: int = 1
    context: int = 1
    expert: int = 1
    """Devices that share the experts of a layer."""
    expert_tensor: int = 1
    """Devices that share each matrix of an expert."""
    fuses_sinks: bool = True
    """Whether the software's fused attention has sinks."""


def block_part(shape: BlockShape, division: Division) -> PartWork:
    """The work of a block on one device."""
    sheet, hidden = Sheet(division.tensor), shape.hidden
    tokens = division.samples * division.length
    own = tokens // division.tensor
    _norm(sheet, own, hidden)
    add_attention(
        sheet,
        shape.attention,
        hidden=hidden,
        samples=division.samples,
        length=division.length,
        context=division.context,
        fuses_sinks=division.fuses_sinks,
    )
    _norm(sheet, own, hidden)
    if shape.experts is None:
        add_gated(sheet, shape.ffn, hidden=hidden, tokens=tokens)
    else:
        add_experts(
            sheet,
            shape.experts,
            hidden=hidden,
            tokens=tokens,
            expert=division.expert,
            expert_tensor=division.expert_tensor,
        )
    forward, backward = sheet.passes()
    return PartWork(
        forward=forward,
        backward=backward,
        again=forward,
        parameters=sheet.parameters,
        parameter_tensors=sheet.parameter_tensors,
        expert_parameters=sheet.expert_parameters,
        held_bytes=sheet.held_bytes,
        entering_bytes=float(ELEMENT * own * hidden),
        attention_bytes=0.0,
        workspace_bytes=max((k.bytes_accessed for k in (*forward.kernels, *backward.kernels)), default=0.0),
    )


def parts_in_sequence(first: PartWork, *others: PartWork) -> PartWork:
    """Several parts as one."""
    return reduce(_joined, others, first)


def _joined(a: PartWork, b: PartWork) -> PartWork:
    return PartWork(
        forward=in_sequence(a.forward, b.forward),
        backward=in_sequence(b.backward, a.backward),
        again=in_sequence(a.again, b.again),
        parameters=a.parameters + b.parameters,
        parameter_tensors=a.parameter_tensors + b.parameter_tensors,
        expert_parameters=a.expert_parameters + b.expert_parameters,
        held_bytes=a.held_bytes + b.held_bytes,
        entering_bytes=a.entering_bytes + b.entering_bytes,
        attention_bytes=a.attention_bytes + b.attention_bytes,
        workspace_bytes=max(a.workspace_bytes, b.workspace_bytes),
    )


def _norm(sheet: Sheet, own: int, hidden: int) -> None:
    """A norm before a part of the block and the residual after it, as fused kernels move them: two reads and a write
    for the sum, three elements in two for the norm."""
    elements = own * hidden
    sheet.moved(1.5 * elements, elements, held=elements)
    sheet.moved(3 * elements, 3 * elements)
    sheet.parameters += hidden
    sheet.parameter_tensors += 1
