"""Loops of Python inside a model that capture has unrolled: operators for every turn, most of them small.

A loop over positions cannot be recognised from what it calls: capture sees its turns, not the loop. They are found by
their lines, each of which a module runs many times. Blocks of a model are modules of their own, and no loop.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence

from alpa_explore.graph.operator import Operator, Phase

_TURNS = 16
"""Times that a module runs a line in a loop. Shared blocks (ALBERT) run up to 12 times."""
_OPERATORS, _SHARE = 500, 0.25
"""Operators of loops, and their share of all: below either, planning does not take long for them."""


def unrolled_loops_warnings(operators: Sequence[Operator]) -> tuple[str, ...]:
    """One sentence if loops of Python account for many of `operators`, else none."""
    lines: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    for operator in operators:
        if operator.phase is Phase.FORWARD and operator.source:
            lines[operator.module, operator.source][operator.kind] += 1
    turns = {line: max(kinds.values()) for line, kinds in lines.items() if max(kinds.values()) >= _TURNS}
    inside = Counter((o.module, o.source) for o in operators if (o.module, o.source) in turns)
    if inside.total() < max(_OPERATORS, _SHARE * len(operators)):
        return ()
    of_module: Counter[str] = Counter()
    for (module, _), count in inside.items():
        of_module[module] += count
    (largest, _), *others = of_module.most_common()
    sources = Counter({source: count for (module, source), count in inside.items() if module == largest})
    file = sources.most_common(1)[0][0].rpartition(":")[0]
    numbers = [int(source.rpartition(":")[2]) for source in sources if source.rpartition(":")[0] == file]
    at = f"{min(numbers)}–{max(numbers)}" if len(numbers) > 1 else f"{numbers[0]}"  # a range of lines
    more = f" and {len(others)} other modules" if others else ""
    repeated = max(turns[largest, source] for source in sources)
    return (
        f"A loop of Python is unrolled ({file}:{at} in {largest or 'the model itself'}{more}): {inside.total():,} of "
        f"{len(operators):,} operators, of one kind up to {repeated} in a line. Planning takes long, and each of them "
        "is a small kernel. Let nn.LSTM, nn.GRU or nn.RNN run the loop if they compute it (proj_size apart), write it "
        "over all steps at once (cumulative sums, a convolution, products of chunks), give it to torch's scan "
        "(torch._higher_order_ops.scan), or make it an operator of its own (torch.library.custom_op).",
    )
