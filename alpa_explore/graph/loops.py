"""The body of a scan, one operator that runs the operators of a step again and again; as text, an argument of it.

A step reads what is carried from the step before, one entry of each stacked input, and shared inputs. It makes what is
carried on, an entry of each stacked output, and addends of sums over all steps. `dump_body(load_body(text)) == text`.

A Python loop over positions cannot be recognised from what it calls: capture sees its turns, not the loop. They are
found by their lines, each of which a module runs many times. Blocks of a model are modules of their own, and no loop.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from alpa_explore.graph.operator import Argument, Operator, Phase, Ref, Symbol
from alpa_explore.graph.tensor import Tensor, TensorKind

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


SCAN = "alpa_explore.scan.default"
"""Its arguments: what is carried, stacked and shared, three tuples; the body; that of the backward pass; whether it
goes from the last step to the first. Its outputs: the last carried, the stacked ones, the sums."""
_REF, _SYMBOL, _TUPLE = "ref", "symbol", "tuple"


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopBody:
    """One step. The first tensors are its inputs: carried, stacked (an entry of each), shared."""

    tensors: tuple[Tensor, ...]
    operators: tuple[Operator, ...]
    inputs: tuple[int, int, int]
    """Numbers of carried, stacked and shared inputs."""
    carried: tuple[int, ...]
    """The tensors that are carried on, in the order of the inputs."""
    stacked: tuple[int, ...]
    summed: tuple[int, ...]
    taken: tuple[int, ...] = ()
    """Of a backward pass, which of all the stacked and shared inputs that it could have it reads, and has."""
    gradients: tuple[int, ...] = ()
    """Of a backward pass, the inputs of the forward one whose gradients it makes, in this order."""

    @property
    def kernels(self) -> int:
        """Of one step; views are none."""
        return sum(o.bytes_accessed > 0 for o in self.operators)


def dump_body(body: LoopBody) -> str:
    """The body as text."""
    return json.dumps(
        {
            "tensors": [[list(t.shape), t.dtype] for t in body.tensors],
            "operators": [[o.kind, *dump_call(o), o.flops, o.bytes_accessed] for o in body.operators],
            "inputs": list(body.inputs),
            "made": [list(body.carried), list(body.stacked), list(body.summed)],
            "of": [list(body.taken), list(body.gradients)],
        },
        separators=(",", ":"),
    )


# Memo of a pure function.
@lru_cache(maxsize=256)
def load_body(text: str) -> LoopBody:
    """The body that `dump_body` wrote. ValueError, TypeError or KeyError for other text."""
    stored = json.loads(text)
    operators = tuple(
        Operator(
            index=i,
            name=f"step.{i}",
            kind=kind,
            phase=Phase.FORWARD,
            flops=flops,
            bytes_accessed=moved,
            **load_call(*call),
        )
        for i, (kind, *call, flops, moved) in enumerate(stored["operators"])
    )
    carried, stacked, summed = (tuple(made) for made in stored["made"])
    taken, gradients = (tuple(places) for places in stored["of"])
    return LoopBody(
        tensors=tuple(body_tensor(i, tuple(shape), dtype) for i, (shape, dtype) in enumerate(stored["tensors"])),
        operators=operators,
        inputs=tuple(stored["inputs"]),
        carried=carried,
        stacked=stacked,
        summed=summed,
        taken=taken,
        gradients=gradients,
    )


def without_unread(body: LoopBody) -> LoopBody:
    """The body without the stacked and shared inputs that it does not read, but with one stacked input: `taken` says
    which are left."""
    carried, stacked, shared = body.inputs
    made = (body.carried, body.stacked, body.summed)
    read = {t for o in body.operators for t in o.inputs} | {t for part in made for t in part}
    of_stacked = [t for t in range(carried, carried + stacked) if t in read] or [carried]
    of_shared = [t for t in range(carried + stacked, carried + stacked + shared) if t in read]
    left = [*range(carried), *of_stacked, *of_shared, *range(sum(body.inputs), len(body.tensors))]
    number = {tensor: place for place, tensor in enumerate(left)}
    return replace(
        body,
        tensors=tuple(replace(body.tensors[t], index=i, name=f"step.{i}") for i, t in enumerate(left)),
        operators=tuple(renumbered(o, o.index, number) for o in body.operators),
        inputs=(carried, len(of_stacked), len(of_shared)),
        carried=tuple(number[t] for t in body.carried),
        stacked=tuple(number[t] for t in body.stacked),
        summed=tuple(number[t] for t in body.summed),
        taken=tuple(t - carried for t in (*of_stacked, *of_shared)),
    )


def renumbered(operator: Operator, index: int, number: Mapping[int, int]) -> Operator:
    """The operator at another place, with other numbers of its tensors."""
    return replace(operator.renumbered(number), index=index, name=f"step.{index}")


def body_between(low: str, high: str, size: Callable[[int, int], int]) -> str | None:
    """The body at another size of the batch, from the same one at two: `size` of two numbers that differ. None where
    more than numbers differs."""
    try:
        return json.dumps(_between(json.loads(low), json.loads(high), size), separators=(",", ":"))
    except _UnlikeError:
        return None


class _UnlikeError(Exception):
    """Bodies that differ in more than numbers."""


def _between(a: Any, b: Any, size: Callable[[int, int], int]) -> Any:
    if a == b and type(a) is type(b):
        return a
    if type(a) is int and type(b) is int:
        return size(a, b)
    if isinstance(a, list) and isinstance(b, list) and len(a) == len(b):
        return [_between(x, y, size) for x, y in zip(a, b, strict=True)]
    if isinstance(a, dict) and isinstance(b, dict) and a.keys() == b.keys():
        return {key: _between(a[key], b[key], size) for key in a}
    raise _UnlikeError


def body_tensor(index: int, shape: tuple[int, ...], dtype: str) -> Tensor:
    """A tensor of a body, which has no name of its own."""
    return Tensor(index=index, name=f"step.{index}", shape=shape, dtype=dtype, kind=TensorKind.VALUE, producer=None)


def body_of(arguments: Sequence[Argument]) -> LoopBody:
    """The body among the arguments of a scan."""
    text = arguments[3]
    assert isinstance(text, str)
    return load_body(text)


def steps_of(arguments: Sequence[Argument], inputs: Sequence[Tensor]) -> int:
    """The steps of a scan with these arguments and inputs."""
    carried = arguments[0]
    assert isinstance(carried, tuple)
    return inputs[len(carried)].shape[0]


def dump_call(operator: Operator) -> list[Any]:
    """The tensors and arguments of an operator as JSON data."""
    arguments = [_dump_argument(a) for a in operator.arguments]
    keywords = [[name, _dump_argument(a)] for name, a in operator.keywords]
    return [list(operator.inputs), list(operator.outputs), arguments, keywords]


def load_call(
    inputs: Sequence[int], outputs: Sequence[int], arguments: Sequence[Any], keywords: Sequence[tuple[str, Any]]
) -> dict[str, Any]:
    """The fields of the operator that `dump_call` stored."""
    return {
        "inputs": tuple(inputs),
        "outputs": tuple(outputs),
        "arguments": tuple(map(_load_argument, arguments)),
        "keywords": tuple((name, _load_argument(a)) for name, a in keywords),
    }


def _dump_argument(argument: Argument) -> Any:
    if isinstance(argument, Ref):
        return [_REF, argument.tensor]
    if isinstance(argument, Symbol):
        return [_SYMBOL, argument.kind, argument.value]
    if isinstance(argument, tuple):
        return [_TUPLE, *map(_dump_argument, argument)]
    return argument


def _load_argument(argument: Any) -> Argument:
    if not isinstance(argument, list):
        scalar: Argument = argument
        return scalar
    kind, *rest = argument
    if kind == _REF:
        return Ref(*rest)
    if kind == _SYMBOL:
        return Symbol(*rest)
    if kind == _TUPLE:
        return tuple(map(_load_argument, rest))
    raise ValueError(f"unknown kind of argument: {kind!r}")
