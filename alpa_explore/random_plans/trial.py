"""One trial: the plan of a draft, interpreted, against one process."""

import re
import traceback
from dataclasses import dataclass

from alpa_explore.errors import NoChoiceError
from alpa_explore.plans.plan import Plan
from alpa_explore.plans.report.parallelism import parallelism
from alpa_explore.programs.check import check
from alpa_explore.programs.lowering.lower import lower
from alpa_explore.random_plans import tuning
from alpa_explore.random_plans.draft import Draft
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
