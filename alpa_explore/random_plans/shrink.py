"""A failing draft -> a small one that still fails in the same way.

Every round tries simpler drafts, the largest steps first: a plain schedule, nothing recomputed, fewer stages, fewer
devices, fewer microbatches, fewer layers; then, as in delta debugging (Zeller, Hildebrandt 2002), blocks of half, a
quarter, … of the sharded choices give way to the plainest. A draft that fails is kept; rounds end when none is.

A trial is the plan of a draft, interpreted, against one process.
"""

import math
import re
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from alpa_explore.errors import NoChoiceError
from alpa_explore.intra_op.stage.recomputation import Recomputation
from alpa_explore.plans.plan import Plan
from alpa_explore.plans.report.parallelism import parallelism
from alpa_explore.programs.check import check
from alpa_explore.programs.lowering.lower import lower
from alpa_explore.random_plans import tuning
from alpa_explore.random_plans.choose import picks_of
from alpa_explore.random_plans.draft import Draft, DraftSubmesh, MeshShape, Pick, Picks, Subject
from alpa_explore.random_plans.plan_maker import PlanMaker, moved
from alpa_explore.runtime.verify import interpreted_differences
from alpa_explore.sharding.rules.attention import CONTEXT


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What came of a trial."""

    relative_error: float
    """The largest of all comparisons; infinite where the plan did not run."""
    where: str
    """The comparison with that error, or the error that ended the trial."""
    kind: str
    """'' for a plan that passed, 'difference', or the class of the error."""
    compared: int = 0
    """Number of comparisons."""
    uses: tuple[str, ...] = ()
    """Kinds of parallelism in the plan, as far as they have names."""

    @property
    def passed(self) -> bool:
        """Whether the plan equals one process."""
        return not self.kind


def try_draft(maker: PlanMaker, draft: Draft, tolerance: float = tuning.TOLERANCE) -> Verdict:
    """Run a draft's plan for `tuning.STEPS` steps in this process, and compare; in float64 as well where rounding may
    be the whole of an error above the tolerance: what a fault changes, it changes in every precision.

    Whatever the plan raises is a verdict; only NoChoiceError, by which a draft makes no plan, is raised.
    """
    try:
        plan = maker.plan(draft)
        program = lower(plan)
        check(program)
        family = maker.family(draft.family)
        compared = interpreted_differences(program, family.state, family.batches, steps=tuning.STEPS)
    except NoChoiceError:
        raise
    except Exception as error:  # a fault of any pass is what is looked for
        last = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{type(error).__name__}: {error} ({last.filename.rpartition('/')[2]}:{last.lineno})"
        return Verdict(relative_error=float("inf"), where=where, kind=type(error).__name__)
    worst = max(compared, key=lambda d: (d.relative_error != d.relative_error, d.relative_error))
    where = f"{worst.what} {worst.name}".strip() + f" in step {worst.step}"
    passed = worst.relative_error <= tolerance
    if not passed and worst.relative_error <= tuning.MOST_ROUNDING:
        exact = _error_in_float64(maker, draft)
        passed = exact <= tuning.TOLERANCE_IN_FLOAT64
        where += f", {exact:.1e} in float64"
    return Verdict(
        relative_error=worst.relative_error,
        where=where,
        kind="" if passed else "difference",
        compared=len(compared),
        uses=_uses(plan, draft),
    )


def _error_in_float64(maker: PlanMaker, draft: Draft) -> float:
    """The largest error of a gradient or weight of the same plan in float64. Losses may be float32 there, too."""
    exact = PlanMaker(in_float64=True)
    family = exact.family(draft.family)
    draft = moved(draft, maker.family(draft.family).graph, family.graph)
    compared = interpreted_differences(lower(exact.plan(draft)), family.state, family.batches, steps=tuning.STEPS)
    return max(d.relative_error for d in compared if d.what != "loss")


_MORE = re.compile(r" \(\d.*")
"""Shares of the FLOPs."""
_OF_FACTOR = {name: f"attention: {name}" for name in CONTEXT} | {
    "exchange": "experts: all-to-all",
    "experts": "experts: gathered tokens",
    "inner": "experts: inner width",
}


def _uses(plan: Plan, draft: Draft) -> tuple[str, ...]:
    """How attention and experts are divided by any operator, and by what names stages go as a whole."""
    factors = {factor for picks in draft.picks for pick in picks.values() for factor in pick.factors}
    found = {name for factor, name in _OF_FACTOR.items() if factor in factors}
    for stage in plan.interleaved or plan.stages:
        axes = [_MORE.sub("", use) for use in parallelism(stage)]
        found |= set(axes)
        if "FSDP (ZeRO-3)" in axes and any(use.startswith("data parallel") for use in axes):
            found.add("HSDP")
    return tuple(sorted(found))


def shrink(
    maker: PlanMaker, draft: Draft, verdict: Verdict, tolerance: float = tuning.TOLERANCE
) -> tuple[Draft, Verdict]:
    """The smallest draft reached from `draft`, which failed with `verdict`, until no step or no time is left; and its
    verdict."""
    end = time.process_time() + tuning.SHRINKING_SECONDS
    smallest, of_smallest = draft, verdict

    def fails(candidate: Draft) -> bool:
        nonlocal smallest, of_smallest
        if not candidate.possible or candidate.size >= smallest.size:
            return False
        try:
            found = try_draft(maker, candidate, tolerance)
            if found.kind != verdict.kind:
                return False
            candidate = replace(candidate, picks=_legal_picks(maker, candidate))
        except NoChoiceError:
            return False
        smallest, of_smallest = candidate, found
        return True

    def round_made_progress() -> bool:
        before = smallest
        for simpler in (_schedules, _stages, _devices, _microbatches, _layers):
            made = True
            while made and time.process_time() < end:
                made = any(fails(candidate) for candidate in simpler(smallest) if time.process_time() < end)
        _fewer_picks(lambda: smallest, fails, lambda: time.process_time() < end)
        return smallest != before

    while time.process_time() < end and round_made_progress():
        pass
    return smallest, of_smallest


def _legal_picks(maker: PlanMaker, draft: Draft) -> tuple[Picks, ...]:
    """The picks that a draft's plan has: picks that were not legal have given way to others."""
    plan = maker.plan(draft)
    assert plan.details is not None, "a plan that was just made"
    return tuple(
        picks_of(maker.problem(draft, stage), plan.details.choices[f"stage {number}"])
        for number, stage in enumerate(draft.stages)
    )


def _schedules(draft: Draft) -> Iterator[Draft]:
    """A stage a submesh instead of several in turn, fewer turns, 1F1B, nothing recomputed."""
    for turns in range(1, draft.turns):
        fewer = [replace(submesh, meshes=submesh.meshes[:turns]) for submesh in draft.submeshes]
        yield _regrouped(draft, fewer, "1f1b" if turns == 1 else draft.schedule)
    if draft.turns == 1 and draft.schedule != "1f1b":
        yield replace(draft, schedule="1f1b")
    if draft.recomputation.recomputes:
        yield replace(draft, recomputation=Recomputation())
    if draft.unlike:
        yield replace(draft, unlike=False)


def _stages(draft: Draft) -> Iterator[Draft]:
    """Two neighbouring submeshes become one, on the meshes of either."""
    for place, (a, b) in enumerate(pairwise(draft.submeshes)):
        for meshes in dict.fromkeys(sorted((a.meshes, b.meshes), key=lambda m: math.prod(m[0]))):
            one = DraftSubmesh(layers=a.layers + b.layers, meshes=meshes)
            submeshes = [*draft.submeshes[:place], one, *draft.submeshes[place + 2 :]]
            yield _regrouped(draft, submeshes, draft.schedule)


def _regrouped(draft: Draft, submeshes: Sequence[DraftSubmesh], schedule: str) -> Draft:
    """The layers on other submeshes: each stage takes the picks that were made on meshes of as many axes."""
    picks: dict[int, dict[Subject, Pick]] = {}
    for stage, of_stage in zip(draft.stages, draft.picks, strict=True):
        picks.setdefault(len(stage.mesh), {}).update(of_stage)
    interleaved = schedule == "interleaved-1f1b"  # which needs a multiple of the number of submeshes
    changed = replace(
        draft,
        submeshes=tuple(submeshes),
        schedule=schedule,
        unlike=draft.unlike and len(submeshes) > 1,
        num_microbatches=len(submeshes) if interleaved else draft.num_microbatches,
    )
    return replace(changed, picks=tuple(picks.get(len(stage.mesh), {}) for stage in changed.stages))


def _devices(draft: Draft) -> Iterator[Draft]:
    """A submesh without one of its axes, or with a smaller one."""
    for place, submesh in enumerate(draft.submeshes):
        if len(set(submesh.meshes)) > 1:  # first the same logical mesh in all turns
            for mesh in dict.fromkeys(submesh.meshes):
                yield _with_mesh(draft, place, mesh, None)
            continue
        mesh = submesh.meshes[0]
        for axis in range(len(mesh)):
            yield _with_mesh(draft, place, (*mesh[:axis], *mesh[axis + 1 :]), axis)
        for axis, size in enumerate(mesh):
            for smaller in range(2, size):
                yield _with_mesh(draft, place, (*mesh[:axis], smaller, *mesh[axis + 1 :]), None)


def _with_mesh(draft: Draft, place: int, mesh: MeshShape, dropped: int | None) -> Draft:
    """Submesh `place` on another logical mesh in all turns; the axis `dropped` is taken from the specs of its picks."""
    changed = replace(draft.submeshes[place], meshes=(mesh,) * draft.turns)
    picks = list(draft.picks)
    for number, stage in enumerate(draft.stages):
        if stage.submesh != place:
            continue
        if dropped is not None:
            picks[number] = {subject: pick.without(dropped) for subject, pick in draft.picks[number].items()}
        elif len(stage.mesh) != len(mesh):
            picks[number] = {}
    return replace(
        draft, submeshes=(*draft.submeshes[:place], changed, *draft.submeshes[place + 1 :]), picks=tuple(picks)
    )


def _microbatches(draft: Draft) -> Iterator[Draft]:
    """Fewer microbatches: one, two, half, one less."""
    b = draft.num_microbatches
    for fewer in sorted({1, 2, len(draft.submeshes), b // 2, b - 1}):
        if 1 <= fewer < b:
            yield replace(draft, num_microbatches=fewer)


def _layers(draft: Draft) -> Iterator[Draft]:
    """One layer a stage."""
    if draft.turns == 1 and not draft.recomputation.recomputes:
        ends = [stage.last for stage in draft.stages[:-1]]
        yield replace(
            draft,
            cuts=tuple(draft.cuts[last] for last in ends),
            submeshes=tuple(replace(submesh, layers=1) for submesh in draft.submeshes),
        )


def _fewer_picks(current: Callable[[], Draft], fails: Callable[[Draft], bool], in_time: Callable[[], bool]) -> None:
    """Blocks of picks give way to the plainest choices, the blocks smaller and smaller."""
    block = max(1, len(_all_picks(current())))
    while in_time():
        start = 0
        while start < len(_all_picks(current())) and in_time():
            block_of = set(_all_picks(current())[start : start + block])
            if not fails(_without(current(), block_of)):
                start += block
        if block == 1:
            return
        block = (block + 1) // 2


def _all_picks(draft: Draft) -> list[tuple[int, Subject]]:
    return [(number, subject) for number, picks in enumerate(draft.picks) for subject in picks]


def _without(draft: Draft, block: set[tuple[int, Subject]]) -> Draft:
    return replace(
        draft,
        picks=tuple(
            {subject: pick for subject, pick in picks.items() if (number, subject) not in block}
            for number, picks in enumerate(draft.picks)
        ),
    )
