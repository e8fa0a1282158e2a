"""Sharding specs in words: which tensor dim is divided over which mesh axis, and what one device holds."""

import math
from collections.abc import Sequence

from alpa_explore import units
from alpa_explore.sharding.spec import read_spec


def axis_sizes(logical_mesh: Sequence[int]) -> tuple[int, ...]:
    """Sizes of the mesh axes that specs number: those with more than one device."""
    return tuple(size for size in logical_mesh if size > 1)


def spec_phrase(spec: str) -> str:
    """'S0R+P1' -> 'dim 0 over axis 0, pending sum over axis 1'; 'RR' -> 'whole on every device'."""
    read = read_spec(spec)
    parts = [f"dim {dim} over {axes_phrase(axes)}" for dim, axes in enumerate(read.dims) if axes]
    if read.pending:
        parts.append(f"pending sum over {axes_phrase(read.pending)}")
    return ", ".join(parts) or "whole on every device"


def spec_lines(spec: str, shape: Sequence[int] | None, sizes: Sequence[int]) -> tuple[str, ...]:
    """A spec in words, a line for each tensor dim that is divided, and what one device holds of a tensor of this shape
    (None where it is not known). `sizes` are those of the mesh axes (`axis_sizes`)."""
    read = read_spec(spec)
    known = shape if shape is not None and len(shape) == len(read.dims) else None
    pieces = [math.prod(sizes[axis] for axis in axes if axis < len(sizes)) for axes in read.dims]
    lines = []
    for dim, (axes, count) in enumerate(zip(read.dims, pieces, strict=True)):
        if axes and known is not None:
            lines.append(f"dim {dim} ({known[dim]:,}) over {axes_phrase(axes)} → {known[dim] // count:,} each")
        elif axes:
            lines.append(f"dim {dim} over {axes_phrase(axes)} → 1/{count} each")
    if read.pending:
        lines.append(f"pending sum over {axes_phrase(read.pending)}: every device holds an addend")
    if not any(read.dims):
        lines.append("whole on every device" if not read.pending else "no dim is divided")
    elif known is not None:
        held = units.shape([size // count for size, count in zip(known, pieces, strict=True)])
        lines.append(f"every device holds {held} of {units.shape(known)}")
    return tuple(lines)


def spec_legend(logical_mesh: Sequence[int]) -> str:
    """How the specs on a logical mesh are read, in one sentence; '' on one device."""
    sizes = axis_sizes(logical_mesh)
    if not sizes:
        return ""
    first, *others = [f"axis {axis} ({size} devices)" for axis, size in enumerate(sizes)]
    parts = [f"S0: this dim is divided over mesh {first}"]
    parts += [f"S{axis}: over {named}" for axis, named in enumerate(others, 1)]
    if others:
        parts.append("S01: over both" if len(sizes) == 2 else "S01: over axes 0 and 1")
    return ", ".join([*parts, "R: whole", f"+P0: pending sum over axis 0{'; P1: over axis 1' if others else ''}"]) + "."


def axes_phrase(axes: Sequence[int]) -> str:
    """(0,) -> 'axis 0'; (0, 1) -> 'axes 0 and 1'."""
    if len(axes) == 1:
        return f"axis {axes[0]}"
    return f"axes {', '.join(map(str, axes[:-1]))} and {axes[-1]}"
