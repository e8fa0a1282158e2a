"""Tensors that several operators need in the same other form get that form once.

A sharding plan pays for resharding a tensor at each of its readers. Two things that models often write would make it
pay several times for one collective:

- Layers that read one tensor through equal views (the projections to queries, keys and values): the views become one.
- A tensor that may be a pending sum (the gradient that comes out of those projections) with several readers: an alias
  after it, which all of them read, is where the sum is completed once.

Neither computes anything, or changes what the graph computes.
"""

import re
from collections.abc import Collection, Sequence
from dataclasses import replace

from alpa_explore.graph import counts, mapped
from alpa_explore.tracing.operators.drafts import Draft, Drafts, TracedTensor
from alpa_explore.tracing.operators.phases import Phases

_ALIAS = "aten.alias.default"
_LINEAR = frozenset(
    """
    aten.add.Tensor aten.sub.Tensor aten.neg.default aten._to_copy.default aten.clone.default aten.mul.Scalar
    aten.div.Scalar aten.view.default aten.unsqueeze.default aten.squeeze.dim
    """.split()
)
"""Kinds that a pending sum of all their inputs passes through. Not transposes: what is transposed has heads, and those
are divided instead."""
_NUMBERED = re.compile(r"^(.*?)(_\d+)?$")
"""The name of a traced node: 'add', 'add_1', …"""
_SUMS = frozenset({"aten.mm.default", "aten.addmm.default", "aten.embedding.default"})
"""Kinds whose output may be a pending sum."""


def share(drafts: Drafts, phases: Phases, kept: Collection[TracedTensor]) -> Phases:
    """`phases` with equal views merged and pending sums completed once; the tensors in `kept` keep their producers."""
    return _complete_once(drafts, _merge_views(drafts, phases, kept), kept)


def _merge_views(drafts: Drafts, phases: Phases, kept: Collection[TracedTensor]) -> Phases:
    known: dict[object, Draft] = {}
    instead: dict[TracedTensor, TracedTensor] = {}
    stands_for: dict[str, Draft] = {}

    def merged(of_phase: Sequence[Draft]) -> tuple[Draft, ...]:
        left = []
        for old in of_phase:
            draft = _reading(old, instead)
            owner = phases.forward_of.get(draft.name, draft)
            key = (draft.kind, draft.backward, draft.arguments, draft.keywords, _block(owner.module))
            reads_made = bool(draft.inputs) and draft.inputs[0] in drafts.producer
            is_view = reads_made and counts.is_view(draft.kind) and len(draft.outputs) == 1
            if is_view and draft.outputs[0] not in kept and key in known:
                instead[draft.outputs[0]] = known[key].outputs[0]
                stands_for[draft.name] = known[key]
                continue
            if is_view:
                known[key] = draft
            stands_for[draft.name] = draft
            left.append(draft)
        return tuple(left)

    forward, backward, update = merged(phases.forward), merged(phases.backward), merged(phases.update)
    forward_of = {name: stands_for[owner.name] for name, owner in phases.forward_of.items()}
    # A merged view may be one before its own place: what follows in the backward pass must not be after that.
    place = {draft.name: i for i, draft in enumerate(forward)}
    made = {key: draft.name for draft in backward for key in draft.outputs}
    for draft in backward:
        owners = [forward_of[draft.name], *(forward_of[made[key]] for key in draft.inputs if key in made)]
        forward_of[draft.name] = min(owners, key=lambda owner: place[owner.name])
    return Phases(forward=forward, backward=backward, update=update, forward_of=forward_of)


def _block(module: str) -> str:
    """The module that contains a layer; a numbered one is on its own: a pipeline may be cut between two of them."""
    parent, _, name = module.rpartition(".")
    return module if name.isdigit() else parent


def _complete_once(drafts: Drafts, phases: Phases, kept: Collection[TracedTensor]) -> Phases:
    readers: dict[TracedTensor, dict[str, bool]] = {}
    for draft in (*phases.forward, *phases.backward):
        for key in draft.inputs:
            readers.setdefault(key, {})[draft.name] = draft.backward
    pending: set[TracedTensor] = set()
    instead: dict[TracedTensor, TracedTensor] = {}
    forward_of = dict(phases.forward_of)

    def completed(of_phase: Sequence[Draft]) -> tuple[Draft, ...]:
        made = []
        for old in of_phase:
            draft = _reading(old, instead)
            made.append(draft)
            if not _passes_sum(drafts, draft, pending):
                continue
            (key,) = draft.outputs
            beside = [name for name, backward in readers.get(key, {}).items() if backward == draft.backward]
            if key in kept or len(beside) < 2:
                pending.add(key)
            else:
                name = _NUMBERED.sub(r"\1_complete\2", draft.name)
                outputs = (TracedTensor(name),)
                alias = replace(draft, name=name, kind=_ALIAS, arguments=(key,), keywords=(), outputs=outputs)
                drafts.tensors[alias.outputs[0]], drafts.producer[alias.outputs[0]] = drafts.tensors[key], alias
                instead[key] = alias.outputs[0]
                if draft.name in forward_of:
                    forward_of[alias.name] = forward_of[draft.name]
                made.append(alias)
        return tuple(made)

    forward, backward = completed(phases.forward), completed(phases.backward)
    update = tuple(_reading(draft, instead) for draft in phases.update)
    return Phases(forward=forward, backward=backward, update=update, forward_of=forward_of)


def _passes_sum(drafts: Drafts, draft: Draft, pending: set[TracedTensor]) -> bool:
    """Whether the output of a draft may be a pending sum, given which of its inputs may."""
    if not all(drafts.tensors[key].is_floating_point() for key in draft.outputs):
        return False
    return draft.kind in _SUMS or (draft.kind in _LINEAR and bool(draft.inputs) and pending.issuperset(draft.inputs))


def _reading(draft: Draft, instead: dict[TracedTensor, TracedTensor]) -> Draft:
    """The draft with some of the tensors that it reads replaced."""
    if not any(key in instead for key in draft.inputs):
        return draft

    def change(part: object) -> object:
        return instead.get(part, part) if isinstance(part, TracedTensor) else part

    keywords = tuple((name, mapped(value, change)) for name, value in draft.keywords)
    return replace(draft, arguments=mapped(draft.arguments, change), keywords=keywords)
