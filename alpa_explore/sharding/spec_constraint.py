"""What a user wishes of one operator of a plan: that its (first) output has a spec, or that it has not; or of one
parameter, by its name in the model: that it is stored in a spec between iterations, or is not.

    pin S0R       every strategy whose output is not S0R is forbidden
    forbid S0R    every strategy whose output is S0R is forbidden

A wish speaks of the plan, with the spec as the plan writes it: axes are those of the logical mesh of the operator's
stage that have more than one device, so S0R cuts over 16 devices on a mesh of 16 and over 2 on one of 2 × 8. It holds
whatever the mesh: where an operator has no strategy that is as wished (S0R on one device, RS1 on a single axis) its
stage cannot have that mesh, and the planner looks for another. There the same pieces may have another name (S01R on
2 × 8 is S0R on 16): to forbid them is to forbid both.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from alpa_explore.errors import InfeasiblePlanError, OptionError, nearest_names
from alpa_explore.graph import Operator, Parameter, TrainingGraph
from alpa_explore.sharding.spec import Spec, legal_specs, render
from alpa_explore.sharding.splits import splits_for
from alpa_explore.sharding.strategy import enumerate_strategies

_AXES = {0: "one device", 1: "a mesh of one axis", 2: "one of two axes"}
_AN = {Operator: "an operator", Parameter: "a parameter"}
_SPEC = re.compile(r"(·|(R|S[0-9]+)+)(\+P[0-9]+)?")


class WishKind(enum.StrEnum):
    """What is wished of a spec."""

    PIN = "pin"
    FORBID = "forbid"


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class SpecWish:
    """One wish; see the module's text."""

    operator: str
    """Its name in the graph; or that of a parameter, where no operator has it."""
    kind: WishKind
    spec: str

    def __str__(self) -> str:
        return f"{self.operator} {'is' if self.kind is WishKind.PIN else 'is not'} {self.spec}"

    def grants(self, spec: str) -> bool:
        """Whether an output of this spec is as wished."""
        return (spec == self.spec) is (self.kind is WishKind.PIN)


def wishes_of(
    pin: Mapping[str, str] | None = None, forbid: Mapping[str, str | Sequence[str]] | None = None
) -> tuple[SpecWish, ...]:
    """Wishes by the names of operators, in an order of their own. OptionError for what is no spec, and for an operator
    that is pinned to a spec that it must not have."""
    for word, given in (("pin", pin), ("forbid", forbid)):
        if not _readable(given, several=word == "forbid"):
            raise OptionError(
                f"{word} names operators or parameters with {'specs' if word == 'forbid' else 'a spec'}",
                found=repr(given),
                remedy=f'Give {word}={{"addmm_3": "S0R"}}, say.',
            )
    pinned = {SpecWish(operator=name, kind=WishKind.PIN, spec=spec) for name, spec in (pin or {}).items()}
    several = {name: [one] if isinstance(one, str) else one for name, one in (forbid or {}).items()}
    forbidden = {
        SpecWish(operator=name, kind=WishKind.FORBID, spec=spec) for name, specs in several.items() for spec in specs
    }
    return _checked(pinned | forbidden)


def _readable(given: object, *, several: bool) -> bool:
    if given is None:
        return True
    if not isinstance(given, Mapping):
        return False
    specs = [
        spec
        for one in given.values()
        for spec in (one if several and isinstance(one, Collection) and not isinstance(one, str) else (one,))
    ]
    return all(isinstance(text, str) for text in (*given, *specs))


def parse_wishes(pin: Iterable[str], forbid: Iterable[str]) -> tuple[SpecWish, ...]:
    """Wishes as they are typed, NAME=SPEC each. OptionError for what cannot be read, and as `wishes_of`."""
    found = set()
    for kind, texts in ((WishKind.PIN, pin), (WishKind.FORBID, forbid)):
        for text in texts:
            name, equals, spec = text.rpartition("=")
            if not equals:
                raise OptionError(
                    "A wish is written NAME=SPEC",
                    found=repr(text),
                    remedy="For example addmm_3=S0R; `alpa-explore show PLAN --stage 0` lists names and specs.",
                )
            found.add(SpecWish(operator=name, kind=kind, spec=spec))
    return _checked(found)


def _checked(wishes: Iterable[SpecWish]) -> tuple[SpecWish, ...]:
    found = tuple(sorted(wishes))
    if fault := fault_of(found):
        raise OptionError(
            "These wishes cannot be",
            found=fault,
            remedy="Pin an operator to one spec, written as in the Sharding figure: S0R, RS1, RS01, RR+P0.",
        )
    return found


def read_wishes(body: Iterable[Mapping[str, str]]) -> tuple[SpecWish, ...]:
    """Wishes from a plan file that satisfies the schema."""
    return tuple(
        sorted(SpecWish(operator=one["operator"], kind=WishKind(one["kind"]), spec=one["spec"]) for one in body)
    )


def fault_of(wishes: Iterable[SpecWish]) -> str | None:
    """What is wrong with wishes whatever the model; None where nothing is."""
    pinned: dict[str, str] = {}
    wishes = tuple(wishes)
    for wish in wishes:
        if not _SPEC.fullmatch(wish.spec):
            return f"{wish.spec!r} of {wish.operator} is no spec"
        if wish.kind is WishKind.PIN and pinned.setdefault(wish.operator, wish.spec) != wish.spec:
            return f"{wish.operator} is pinned to {pinned[wish.operator]} and to {wish.spec}"
    for wish in wishes:
        if wish.kind is WishKind.FORBID and pinned.get(wish.operator) == wish.spec:
            return f"{wish.operator} is pinned to {wish.spec}, which is forbidden"
    return None


def wished(wishes: Iterable[SpecWish], new: SpecWish) -> tuple[SpecWish, ...]:
    """Wishes with a new one, which takes the place of those that it contradicts."""

    def stays(old: SpecWish) -> bool:
        both_pinned = old.kind is new.kind is WishKind.PIN
        return old.operator != new.operator or (old.spec != new.spec and not both_pinned)

    return tuple(sorted((*(old for old in wishes if stays(old)), new)))


def mappings(wishes: Iterable[SpecWish]) -> dict[str, Any]:
    """The `pin` and `forbid` that `wishes_of` takes; neither where it would be empty."""
    pin: dict[str, str] = {}
    forbid: dict[str, list[str]] = {}
    for wish in wishes:
        if wish.kind is WishKind.PIN:
            pin[wish.operator] = wish.spec
        else:
            forbid.setdefault(wish.operator, []).append(wish.spec)
    return {**({"pin": pin} if pin else {}), **({"forbid": forbid} if forbid else {})}


def granted(wishes: Sequence[SpecWish], specs: Iterable[Spec], rank: int) -> list[bool]:
    """For each spec of a tensor of `rank` dims whether it is as wished."""
    return [all(wish.grants(render(spec, rank)) for wish in wishes) for spec in specs]


def check_wishes(wishes: Iterable[SpecWish], graph: TrainingGraph, meshes: Iterable[tuple[int, ...]]) -> None:
    """OptionError for an operator or parameter that the graph has not, InfeasiblePlanError for wishes that none of the
    (squeezed) meshes grants: at another size of the microbatch it may."""
    of: dict[str, list[SpecWish]] = {}
    for wish in wishes:
        of.setdefault(wish.operator, []).append(wish)
    known: dict[str, Operator | Parameter] = {p.name: p for p in graph.parameters}
    known |= {o.name: o for o in graph.operators if o.outputs}
    shapes = sorted(set(meshes), key=lambda shape: (len(shape), shape))
    for name, own in of.items():
        if name not in known:
            raise OptionError(
                "The model has no operator or parameter of this name to pin or forbid",
                found=repr(name),
                remedy=nearest_names(name, known),
            )
        # By the number of axes: a large cluster has many meshes of each.
        specs: dict[int, dict[str, None]] = {}
        for shape in shapes:
            specs.setdefault(len(shape), {}).update(dict.fromkeys(_specs(known[name], graph, shape)))
        if not any(all(wish.grants(spec) for wish in own) for there in specs.values() for spec in there):
            there = "; ".join(f"{', '.join(found)} on {_AXES.get(n, f'{n} axes')}" for n, found in specs.items())
            raise InfeasiblePlanError(
                f"No logical mesh of the cluster grants what is wished of {_AN[type(known[name])]}",
                found="; ".join(map(str, own)),
                remedy=f"Pin or forbid other specs: it can be {there}.",
            )


def _specs(operator: Operator | Parameter, graph: TrainingGraph, mesh_shape: tuple[int, ...]) -> list[str]:
    """What the first output of an operator, or a stored parameter, can be on a mesh."""
    if isinstance(operator, Parameter):
        shape = graph.tensors[operator.tensor].shape
        return [render(spec, len(shape)) for spec in legal_specs(shape, mesh_shape, partial=False)]
    read, made = ([graph.tensors[t].shape for t in side] for side in (operator.inputs, operator.outputs))
    how = splits_for(operator, graph.tensors)
    strategies = enumerate_strategies(how.splits, read, made, mesh_shape, replicable=not how.heavy)
    return list(dict.fromkeys(render(s.outputs[0], len(made[0])) for s in strategies))
