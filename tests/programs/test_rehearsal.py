"""What a rehearsal says of a rank's collectives is what they exchange when it runs."""

import pytest

from alpa_explore.programs.execution import interpret as interpreter
from alpa_explore.programs.execution.rehearsal import CollectiveCall, rehearse
from tests.programs.cases import Case, at_random, random_plan


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1])
def test_every_collective_is_foreseen_with_its_bytes(seed, monkeypatch) -> None:
    options, stages, schedule = random_plan(seed)
    case = Case("gpt-tiny", **options)
    program = case.program(stages, at_random(seed), schedule)
    seen: dict[tuple[int, int, int, int], list[CollectiveCall]] = {}
    collective = interpreter.LocalTransport.collective

    def recorded(transport, task, one, piece):
        made = yield from collective(transport, task, one, piece)
        own = seen.setdefault((transport.rank, *task), [])
        own.append(CollectiveCall(kind=one.kind, ranks=one.ranks, bytes=max(piece.nbytes, made.nbytes)))
        return made

    monkeypatch.setattr(interpreter.LocalTransport, "collective", recorded)
    case.assert_equal(program)
    assert seen
    for rank in program.ranks:
        _, tasks = rehearse(program, rank)
        for task in program.order(rank):
            foreseen = tasks[task.stage, task.action].collectives
            assert foreseen == tuple(seen.get((rank, *task), ())), (rank, str(task))
