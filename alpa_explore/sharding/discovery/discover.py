"""Splits of an operator that no rule knows, found by running it (design.md, section 6).

A split is believed when the operator, run as it is on the pieces of its inputs, gives pieces of the whole:

1. *Shapes, at full size* (`shapes`). On tensors without memory every way of cutting dims of equal extent is tried, with
   the real arguments. What an output must then be follows from its shape: cut along one dim, or of full size.
2. *Values, at small sizes* (`trials`). The sizes shrink (`small_sizes`) and the operator runs on real numbers in
   float64 (normal, positive, with ties, large), cut into 2, 3 and 4 pieces. The outputs of the pieces must be,
   concatenated or added, those of the whole; at two different shrinkings, and at full size where that is small.
3. *Pairs.* Two splits on two mesh axes must hold together, or the later one is given up.

Only "as it is" counts: `sharding.local` changes no argument of an operator that it does not know. Whatever cannot be
judged (random numbers, in-place writes, shapes that hang on values, no kernel) is left whole, with the reason. Values
are computed in a child process (`child`): some kernels write out of bounds where the pieces do not fit each other.
"""

from __future__ import annotations

from collections.abc import Sequence

from alpa_explore.graph import Operator, Tensor
from alpa_explore.graph.signature import operator_signature
from alpa_explore.sharding.discovery.child import CrashError, run_in_child
from alpa_explore.sharding.discovery.discoveries import Discovery, known, remember
from alpa_explore.sharding.discovery.question import Question, RefusalError, short
from alpa_explore.sharding.discovery.shapes import Candidate, candidates
from alpa_explore.sharding.discovery.verdicts import proven_splits
from alpa_explore.sharding.local.steps import StepWriter
from alpa_explore.sharding.strategy import Split
from alpa_explore.tracing.aten import overload

__all__ = ["Discovery", "discover"]

_LIMIT_SECONDS = 60.0
"""Of one child; operators take milliseconds."""


def discover(operator: Operator, inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> Discovery:
    """The splits of `operator` on tensors of these shapes and dtypes. Never raises; equal operators are run once."""
    tensors = dict(zip((*operator.inputs, *operator.outputs), (*inputs, *outputs), strict=True))
    signature = operator_signature(operator, tensors)
    found = known(signature)
    if found is None:
        found = _discovered(Question(_numbered(operator), tuple(inputs), tuple(outputs)))
        remember([(signature, found)])
    return found


def _discovered(question: Question) -> Discovery:
    try:
        _check_kind(question.operator.kind)
        if not question.inputs:
            raise RefusalError("it reads no tensors that could be cut")
        return _judged(question, candidates(question))
    except RefusalError as refusal:
        return Discovery((), str(refusal))
    except Exception as error:  # whatever an unknown operator does, no plan fails for it
        return Discovery((), f"it could not be run: {short(error)}")


def _judged(question: Question, found: Sequence[Candidate]) -> Discovery:
    """Values, in a child. Where it crashes, each candidate is tried in a child of its own, and the deadly ones go."""
    if not found:
        return Discovery((), "no cut of its inputs gives outputs of fitting shapes")
    try:
        answer = _run(question, found)
    except CrashError as crash:
        if crash.late or crash.step is None:
            return Discovery((), f"running it on small inputs {crash}")
        living = [c for c in found if _survives(question, c)]
        try:
            answer = _run(question, living)
        except CrashError as again:
            return Discovery((), f"running it on small inputs {again}")
    if isinstance(answer, str):
        return Discovery((), answer)
    return Discovery(answer, "" if answer else "no way of cutting its inputs gives pieces of its outputs")


def _run(question: Question, found: Sequence[Candidate]) -> tuple[Split, ...] | str:
    answer: tuple[Split, ...] | str = run_in_child(
        lambda report: proven_splits(question, found, report), limit_seconds=_LIMIT_SECONDS
    )
    return answer


def _survives(question: Question, candidate: Candidate) -> bool:
    """True when the candidate holds, and does not crash."""
    try:
        return bool(_run(question, [candidate]))
    except CrashError:
        return False


def _check_kind(kind: str) -> None:
    """Refuse what torch does not know, and what writes into its inputs."""
    if kind.count(".") != 2:
        raise RefusalError("torch knows no operator of this name")
    try:
        found = overload(kind)
    except AttributeError as error:
        unknown = "torch knows no operator of this name (is the library that defines it imported?)"
        raise RefusalError(unknown) from error
    if found._schema.is_mutable:
        raise RefusalError("it writes into its inputs")


def _numbered(operator: Operator) -> Operator:
    """`operator` reading tensors 0, 1, …: one for each place."""
    writer = StepWriter(operator)
    writer.call_all(operator.kind, writer.arguments, writer.keywords, len(operator.outputs))
    (step,) = writer.finish([]).steps
    assert isinstance(step, Operator)
    return step
