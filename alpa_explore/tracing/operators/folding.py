"""Calls in a canonical form, and calls that compute nothing folded into the tensor that they return.

Folded: detach and alias; views and casts that change nothing; a view of a view (one view of the first); a transpose of
a transpose where the two cancel. Every transpose is written as `aten.permute.default` and every reshape as
`aten.view.default` with explicit sizes.
"""

from collections.abc import Mapping
from typing import Any, TypeAlias

from alpa_explore.graph import Symbol
from alpa_explore.tracing.operators.drafts import DraftArgument, Drafts, TracedTensor
from alpa_explore.tracing.symbols import permutation

SAME_IF_SAME_SHAPE = frozenset(
    """
    aten.view.default aten._unsafe_view.default aten.expand.default aten.slice.Tensor aten.repeat.default
    aten.slice_backward.default aten.squeeze.dim aten.squeeze.dims aten.squeeze.default
    """.split()
)
"""Kinds that return their input when the shape does not change."""
_ALWAYS_SAME = frozenset(
    {"aten.detach.default", "aten.alias.default", "aten.lift_fresh.default", "aten.lift_fresh_copy.default"}
)
"""Kinds that always return their input."""
_VIEW, _PERMUTE = "aten.view.default", "aten.permute.default"

Folded: TypeAlias = "tuple[str, tuple[DraftArgument, ...], TracedTensor | None]"


def fold(
    drafts: Drafts, kind: str, arguments: tuple[DraftArgument, ...], keywords: Mapping[str, DraftArgument], value: Any
) -> Folded:
    """The call in canonical form: (kind, arguments, the tensor that it returns if it computes nothing, else None)."""
    if kind == "aten.cat.default" and isinstance(arguments[0], tuple):
        # Caches for generation start as empty tensors of rank 1, which cat ignores.
        parts = tuple(part for part in arguments[0] if isinstance(part, TracedTensor) and drafts.tensors[part].numel())
        return kind, (parts, *arguments[1:]), parts[0] if len(parts) == 1 else None
    if not arguments or not isinstance(arguments[0], TracedTensor):
        return kind, arguments, None
    source = arguments[0]
    before = drafts.tensors[source]
    if kind in _ALWAYS_SAME:
        return kind, arguments, source
    if kind in SAME_IF_SAME_SHAPE and before.shape == value.shape:
        return kind, arguments, source
    if kind == "aten._to_copy.default":
        dtype = keywords.get("dtype")
        same = before.dtype == value.dtype and (dtype is None or isinstance(dtype, Symbol))
        return kind, arguments, source if same else None
    if kind in ("aten.copy.default", "aten.copy"):
        written = arguments[1]
        assert isinstance(written, TracedTensor)
        after = drafts.tensors[written]
        same = after.shape == value.shape and after.dtype == value.dtype
        return kind, arguments, written if same else None
    if kind in (_VIEW, "aten._unsafe_view.default"):
        inner = drafts.producer.get(source)
        if inner is not None and inner.kind == _VIEW:
            (source, *_) = inner.inputs
            if drafts.tensors[source].shape == value.shape:
                return kind, arguments, source
        return _VIEW, (source, tuple(value.shape)), None
    if kind in ("aten.t.default", "aten.transpose.int", _PERMUTE):
        order = permutation(kind, arguments, before.dim())
        inner = drafts.producer.get(source)
        if inner is not None and inner.kind == _PERMUTE:
            first = inner.arguments[1]
            assert isinstance(first, tuple)
            if tuple(first[place] for place in order) == tuple(range(before.dim())):
                return kind, arguments, inner.inputs[0]
        identity = order == tuple(range(before.dim()))
        return _PERMUTE, (source, order), source if identity else None
    return kind, arguments, None
