"""Spec constraints: the spec of an operator's first output, or of a stored parameter, is required (pin) or excluded
(forbid).

    pin S0R       every strategy whose output is not S0R is forbidden
    forbid S0R    every strategy whose output is S0R is forbidden

The spec is written as the plan writes it. Its axes are the axes of the stage's logical mesh that have more than one
device, so S0R shards over 16 devices on a mesh of 16 and over 2 on a mesh of 2 × 8. A constraint holds on every mesh:
a stage cannot use a mesh on which no strategy of the operator satisfies it (S0R on one device, RS1 on a single axis),
and the planner chooses another. One sharding may have two names (S01R on 2 × 8 is S0R on 16): to exclude it, forbid
both.
"""

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


class ConstraintKind(enum.StrEnum):
    """Whether a spec is required or excluded."""

    PIN = "pin"
    FORBID = "forbid"


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class SpecConstraint:
    """One spec constraint; see the module docstring."""

    operator: str
    """Name of an operator of the graph; else of a parameter."""
    kind: ConstraintKind
    spec: str

    def __str__(self) -> str:
        return f"{self.operator} {'is' if self.kind is ConstraintKind.PIN else 'is not'} {self.spec}"

    def allows(self, spec: str) -> bool:
        """Whether an output of this spec satisfies the constraint."""
        return (spec == self.spec) is (self.kind is ConstraintKind.PIN)


def constraints_of(
    pin: Mapping[str, str] | None = None, forbid: Mapping[str, str | Sequence[str]] | None = None
) -> tuple[SpecConstraint, ...]:
    """The spec constraints, sorted, from names of operators or parameters and their specs.

    OptionError for text that is not a spec, and for an operator that is pinned to a forbidden spec.
    """
    for word, given in (("pin", pin), ("forbid", forbid)):
        if not _readable(given, several=word == "forbid"):
            raise OptionError(
                f"{word} names operators or parameters with {'specs' if word == 'forbid' else 'a spec'}",
                found=repr(given),
                remedy=f'For example {word}={{"addmm_3": "S0R"}}.',
            )
    pinned = {SpecConstraint(operator=name, kind=ConstraintKind.PIN, spec=spec) for name, spec in (pin or {}).items()}
    several = {name: [one] if isinstance(one, str) else one for name, one in (forbid or {}).items()}
    forbidden = {
        SpecConstraint(operator=name, kind=ConstraintKind.FORBID, spec=spec)
        for name, specs in several.items()
        for spec in specs
    }
    return _checked(pinned | forbidden)


def _readable(given: object, *, several: bool) -> bool:
    if given is None:
        return True
    if not isinstance(given, Mapping):
        return False
    specs = [
        spec
        for given_specs in given.values()
        for spec in (
            given_specs
            if several and isinstance(given_specs, Collection) and not isinstance(given_specs, str)
            else (given_specs,)
        )
    ]
    return all(isinstance(text, str) for text in (*given, *specs))


def parse_constraints(pin: Iterable[str], forbid: Iterable[str]) -> tuple[SpecConstraint, ...]:
    """Spec constraints from texts of the form NAME=SPEC. OptionError for another form, and as `constraints_of`."""
    constraints = set()
    for kind, texts in ((ConstraintKind.PIN, pin), (ConstraintKind.FORBID, forbid)):
        for text in texts:
            name, equals, spec = text.rpartition("=")
            if not equals:
                raise OptionError(
                    "A spec constraint is written NAME=SPEC",
                    found=repr(text),
                    remedy="For example addmm_3=S0R; `alpa-explore show PLAN --stage 0` lists names and specs.",
                )
            constraints.add(SpecConstraint(operator=name, kind=kind, spec=spec))
    return _checked(constraints)


def _checked(spec_constraints: Iterable[SpecConstraint]) -> tuple[SpecConstraint, ...]:
    ordered = tuple(sorted(spec_constraints))
    if fault := fault_of(ordered):
        raise OptionError(
            "The spec constraints are not valid",
            found=fault,
            remedy="Pin an operator to one spec, written as in the Sharding figure: S0R, RS1, RS01, RR+P0.",
        )
    return ordered


def fault_of(spec_constraints: Iterable[SpecConstraint]) -> str | None:
    """The fault in the spec constraints, independently of the model; None if there is none."""
    pinned: dict[str, str] = {}
    spec_constraints = tuple(spec_constraints)
    for constraint in spec_constraints:
        if not _SPEC.fullmatch(constraint.spec):
            return f"{constraint.spec!r} of {constraint.operator} is not a sharding spec"
        if (
            constraint.kind is ConstraintKind.PIN
            and pinned.setdefault(constraint.operator, constraint.spec) != constraint.spec
        ):
            return f"{constraint.operator} is pinned to {pinned[constraint.operator]} and to {constraint.spec}"
    for constraint in spec_constraints:
        if constraint.kind is ConstraintKind.FORBID and pinned.get(constraint.operator) == constraint.spec:
            return f"{constraint.operator} is pinned to {constraint.spec}, which is forbidden"
    return None


def constrained(spec_constraints: Iterable[SpecConstraint], new: SpecConstraint) -> tuple[SpecConstraint, ...]:
    """Spec constraints with a new one added, and those that contradict it removed."""

    def stays(old: SpecConstraint) -> bool:
        both_pinned = old.kind is new.kind is ConstraintKind.PIN
        return old.operator != new.operator or (old.spec != new.spec and not both_pinned)

    return tuple(sorted((*(old for old in spec_constraints if stays(old)), new)))


def mappings(spec_constraints: Iterable[SpecConstraint]) -> dict[str, Any]:
    """The constraints as the `pin` and `forbid` arguments of `constraints_of`; an empty one is left out."""
    pin: dict[str, str] = {}
    forbid: dict[str, list[str]] = {}
    for constraint in spec_constraints:
        if constraint.kind is ConstraintKind.PIN:
            pin[constraint.operator] = constraint.spec
        else:
            forbid.setdefault(constraint.operator, []).append(constraint.spec)
    return {**({"pin": pin} if pin else {}), **({"forbid": forbid} if forbid else {})}


def satisfied(spec_constraints: Sequence[SpecConstraint], specs: Iterable[Spec], rank: int) -> list[bool]:
    """For each spec of a tensor of `rank` dims whether it satisfies the constraints."""
    return [all(constraint.allows(render(spec, rank)) for constraint in spec_constraints) for spec in specs]


def check_constraints(
    spec_constraints: Iterable[SpecConstraint], graph: TrainingGraph, meshes: Iterable[tuple[int, ...]]
) -> None:
    """OptionError for an operator or parameter that is not in the graph; InfeasiblePlanError when the constraints on
    one cannot be satisfied on any of the (squeezed) meshes; at another microbatch size they may be."""
    constraints_of_target: dict[str, list[SpecConstraint]] = {}
    for constraint in spec_constraints:
        constraints_of_target.setdefault(constraint.operator, []).append(constraint)
    targets: dict[str, Operator | Parameter] = {p.name: p for p in graph.parameters}
    targets |= {o.name: o for o in graph.operators if o.outputs}
    shapes = sorted(set(meshes), key=lambda shape: (len(shape), shape))
    for name, constraints in constraints_of_target.items():
        if name not in targets:
            raise OptionError(
                "The model has no operator or parameter of this name to pin or forbid",
                found=repr(name),
                remedy=nearest_names(name, targets),
            )
        # By number of axes: a large cluster has many meshes with equally many.
        specs: dict[int, dict[str, None]] = {}
        for shape in shapes:
            specs.setdefault(len(shape), {}).update(dict.fromkeys(_specs(targets[name], graph, shape)))
        if not any(
            all(constraint.allows(spec) for constraint in constraints) for names in specs.values() for spec in names
        ):
            possible = "; ".join(f"{', '.join(names)} on {_AXES.get(n, f'{n} axes')}" for n, names in specs.items())
            raise InfeasiblePlanError(
                f"No logical mesh of the cluster satisfies the spec constraints on {_AN[type(targets[name])]}",
                found="; ".join(map(str, constraints)),
                remedy=f"Pin or forbid other specs: it can be {possible}.",
            )


def _specs(operator: Operator | Parameter, graph: TrainingGraph, mesh_shape: tuple[int, ...]) -> list[str]:
    """The specs that the first output of an operator, or a stored parameter, can have on a mesh."""
    if isinstance(operator, Parameter):
        shape = graph.tensors[operator.tensor].shape
        return [render(spec, len(shape)) for spec in legal_specs(shape, mesh_shape, partial=False)]
    read, made = ([graph.tensors[t].shape for t in side] for side in (operator.inputs, operator.outputs))
    coverage = splits_for(operator, graph.tensors)
    strategies = enumerate_strategies(coverage.splits, read, made, mesh_shape, replicable=not coverage.heavy)
    return list(dict.fromkeys(render(s.outputs[0], len(made[0])) for s in strategies))
