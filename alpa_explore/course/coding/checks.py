"""What a right solution of each coding task does. A check raises `Wrong` with the first difference."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from itertools import combinations, pairwise, product
from random import Random
from typing import Any

import numpy as np

from alpa_explore.course.coding.designs import layout_that_runs, rule_of_thumb, three_measurements
from alpa_explore.course.coding.lockstep import Wrong, run_devices
from alpa_explore.errors import ScheduleError
from alpa_explore.schedules.orders.one_f_one_b import one_f_one_b as best_order
from alpa_explore.schedules.simulator.simulate import simulate
from alpa_explore.schedules.simulator.times import StageTimes
from alpa_explore.schedules.task import Action, schedule_of

Solution = Callable[..., Any]


def _same(found: Any, expected: Any, what: str) -> None:
    """Numbers and arrays within rounding; else `Wrong`."""
    try:
        equal = np.shape(found) == np.shape(expected) and np.allclose(found, expected, rtol=1e-6, atol=1e-9)
    except (TypeError, ValueError):
        equal = False
    if not equal:
        raise Wrong(f"{what}: it gives {found!r:.160}, and {expected!r:.160} is right.")


def ring_all_reduce(solution: Solution) -> None:
    """Play the moves on p devices with a chunk each of every part."""
    for p in (2, 3, 4, 8):
        start = np.random.default_rng(p).integers(1, 100, (p, p)).astype(float)
        held = start.copy()  # [device, chunk]
        for step in range(2 * (p - 1)):
            moves = [solution(rank, p, step) for rank in range(p)]
            if not all(isinstance(m, int | np.integer) and 0 <= m < p for m in moves):
                raise Wrong(f"With {p} devices, step {step}: chunks are numbers from 0 to {p - 1}, here {moves}.")
            sent = [held[rank, chunk] for rank, chunk in enumerate(moves)]
            for rank, (chunk, value) in enumerate(zip(moves, sent, strict=True)):
                receiver = (rank + 1) % p
                held[receiver, chunk] = value + (held[receiver, chunk] if step < p - 1 else 0.0)
        if not np.array_equal(held, np.tile(start.sum(axis=0), (p, 1))):
            rank, chunk = np.argwhere(held != start.sum(axis=0))[0]
            raise Wrong(f"With {p} devices, after {2 * (p - 1)} steps device {rank} has no sum of chunk {chunk}.")


def matmul_rule(solution: Solution) -> None:
    """Run every pair of specs on two devices: split, multiply, recombine."""
    random = np.random.default_rng(5)
    a, b = random.normal(size=(4, 6)), random.normal(size=(6, 8))
    dims = {"R": None, "S0": 0, "S1": 1}

    def parts(whole: Any, spec: str) -> list[Any]:
        dim = dims[spec]
        return [whole, whole] if dim is None else np.split(whole, 2, axis=dim)

    for left, right in product(dims, dims):
        local, whole = (parts(a, left), parts(b, right)), a @ b
        possible = {}
        if local[0][0].shape[1] == local[1][0].shape[0]:
            products = [x @ y for x, y in zip(*local, strict=True)]
            together = {"P": sum(products), "R": products[0]}
            together |= {"S0": np.concatenate(products, axis=0), "S1": np.concatenate(products, axis=1)}
            possible = {
                spec: value.shape == whole.shape and np.allclose(value, whole) for spec, value in together.items()
            }
        right_specs = [spec for spec, works in possible.items() if works]
        expected = right_specs[0] if right_specs else None
        if (found := solution(left, right)) != expected:
            raise Wrong(f"a is {left}, b is {right}: it says {found}, and run on two devices {expected} is right.")


def min_plus(solution: Solution) -> None:
    """Beside a loop over all three indices."""
    random = np.random.default_rng(6)
    for rows, inner, columns in ((1, 1, 1), (2, 3, 4), (5, 2, 3)):
        a, b = random.uniform(1, 9, (rows, inner)), random.uniform(1, 9, (inner, columns))
        a[random.uniform(size=a.shape) < 0.3] = np.inf
        expected = [[min(a[i, k] + b[k, j] for k in range(inner)) for j in range(columns)] for i in range(rows)]
        _same(
            np.asarray(solution(a.tolist(), b.tolist()), dtype=float), np.array(expected), f"{rows}×{inner}×{columns}"
        )


def layering(solution: Solution) -> None:
    """Eq. 6 by trying every set of cuts."""
    random = Random(4)
    for count, layers in ((1, 1), (5, 2), (7, 3), (8, 4)):
        flops = [random.randint(1, 9) for _ in range(count)]
        cut = [0, *(random.randint(1, 50) for _ in range(count - 1))]
        for delta in (0.5, 2.0):
            most, best = (1 + delta) * sum(flops) / layers, math.inf
            for cuts in combinations(range(1, count), layers - 1):
                ends = [*cuts, count]
                if all(sum(flops[i:j]) <= most for i, j in zip([0, *cuts], ends, strict=True)):
                    best = min(best, max((cut[c] for c in cuts), default=0))
            given = f"flops {flops}, cut {cut}, {layers} layers, delta {delta}"
            _same(solution(list(flops), list(cut), layers, delta), best, given)


def pipeline(solution: Solution) -> None:
    """Eq. 2 to 4 by trying every pipeline."""
    random = Random(7)
    for layers, devices in ((1, 1), (3, 2), (4, 4), (4, 3)):
        seconds = {
            (i, j, n): (j - i) * random.uniform(1, 3) / n**0.7
            for i in range(layers)
            for j in range(i + 1, layers + 1)
            for n in range(1, devices + 1)
        }
        for microbatches in (1, 4, 64):

            def pipelines(
                first: int, left: int, table: Mapping[Any, float] = seconds, last: int = layers
            ) -> Iterator[Any]:
                if first == last and not left:
                    yield []
                for end, n in product(range(first + 1, last + 1), range(1, left + 1)):
                    yield from ([table[first, end, n], *rest] for rest in pipelines(end, left - n, table, last))

            expected = min(sum(t) + (microbatches - 1) * max(t) for t in pipelines(0, devices))
            given = f"{layers} layers on {devices} devices, B = {microbatches}"
            _same(solution(dict(seconds), layers, devices, microbatches), expected, given)


def one_f_one_b(solution: Solution) -> None:
    """Run the order in the simulator of schedules, beside 1F1B."""
    letters = {"F": Action.FORWARD, "B": Action.BACKWARD}
    for stages, microbatches in ((1, 3), (2, 2), (4, 8), (4, 2), (3, 7)):
        what = f"{stages} stages, {microbatches} microbatches"
        orders = [list(solution(stage, stages, microbatches)) for stage in range(stages)]
        for stage, order in enumerate(orders):
            if sorted(order) != sorted((kind, m) for kind in letters for m in range(microbatches)):
                raise Wrong(f'{what}: stage {stage} has ("F", m) and ("B", m) once for each m, here {order[:6]} …')
            held = most = 0
            for kind, _ in order:
                held += 1 if kind == "F" else -1
                most = max(most, held)
            if most > min(stages - stage, microbatches):
                raise Wrong(f"{what}: stage {stage} holds {most} microbatches, and {stages - stage} are allowed.")
        times = [StageTimes(forward_seconds=1.0, backward_input_seconds=2.0, backward_weight_seconds=0.0)] * stages
        made = schedule_of("yours", [[(letters[k], s, m) for k, m in o] for s, o in enumerate(orders)], microbatches)
        try:
            seconds = simulate(made, times).makespan_seconds
        except ScheduleError as error:
            raise Wrong(f"{what}: it cannot run. {error.what}: {error.found}") from None
        best = simulate(best_order(stages, microbatches), times).makespan_seconds
        if seconds > best + 1e-9:
            raise Wrong(f"{what}: it takes {seconds:g} s in the simulator, and 1F1B {best:g} s.")


def zero_1_step(solution: Solution) -> None:
    """Beside a step with momentum on one device; no device may have more than its part of the momentum."""
    random = np.random.default_rng(9)
    for ranks in (1, 2, 4):
        size = 8
        weight, momentum, rate, beta = random.normal(size=size), random.normal(size=size), 0.1, 0.9
        gradients = random.normal(size=(ranks, size))
        parts = np.split(momentum, ranks)
        calls: list[tuple[str, int]] = []
        inputs = [(weight.copy(), gradients[r].copy(), parts[r].copy(), rate, beta) for r in range(ranks)]
        found = run_devices(solution, inputs, calls)
        moved = beta * momentum + gradients.mean(axis=0)
        for rank, answer in enumerate(found):
            if not isinstance(answer, tuple) or len(answer) != 2:
                raise Wrong("A device returns two arrays: the new weight and its part of the new momentum.")
            _same(np.asarray(answer[1]), np.split(moved, ranks)[rank], f"Momentum of device {rank} of {ranks}")
            _same(np.asarray(answer[0]), weight - rate * moved, f"Weight of device {rank} of {ranks}")
        if any(kind == "all-reduce" for kind, _ in calls) and ranks > 1:
            raise Wrong("An all-reduce sends twice what is needed: a device uses its part of the sum alone.")


def recompute(solution: Solution) -> None:
    """The least extra seconds, by trying every set of blocks."""
    random = Random(90)
    for count in (1, 4, 8):
        seconds = [random.randint(1, 20) for _ in range(count)]
        sizes = [random.randint(1, 20) for _ in range(count)]
        for room in (0, sum(sizes) // 2, sum(sizes)):
            best = min(
                sum(seconds[i] for i in chosen)
                for n in range(count + 1)
                for chosen in combinations(range(count), n)
                if sum(sizes) - sum(sizes[i] for i in chosen) <= room
            )
            given = f"seconds {seconds}, bytes {sizes}, room {room}"
            chosen = set(solution(list(seconds), list(sizes), room))
            if not chosen <= set(range(count)):
                raise Wrong(f"{given}: blocks are numbers from 0 to {count - 1}, here {chosen}.")
            if (held := sum(sizes) - sum(sizes[i] for i in chosen)) > room:
                raise Wrong(f"{given}: recomputing {sorted(chosen)} still holds {held}.")
            _same(sum(seconds[i] for i in chosen), best, f"{given}: extra seconds")


def online_softmax(solution: Solution) -> None:
    """Merge pieces of a row of scores in several orders, beside softmax of the whole row."""
    random = np.random.default_rng(10)
    for scale in (1.0, 1000.0):
        scores, values = scale * (2 + random.normal(size=12)), random.normal(size=(12, 3))

        def piece(i: int, j: int, s: Any = scores, v: Any = values) -> tuple[float, float, Any]:
            weights = np.exp(s[i:j] - s[i:j].max())
            return float(s[i:j].max()), float(weights.sum()), weights @ v[i:j] / weights.sum()

        whole = piece(0, 12)
        left = solution(solution(piece(0, 3), piece(3, 8)), piece(8, 12))
        right = solution(piece(0, 3), solution(piece(3, 8), piece(8, 12)))
        for merged in (left, right):
            for name, found, expected in zip(("maximum", "sum", "output"), merged, whole, strict=True):
                _same(found, expected, f"Scores of about ±{scale:g}, {name}")


def zig_zag(solution: Solution) -> None:
    """Every position once, in runs, and the same causal work for every device."""
    for ranks, length in ((1, 4), (2, 8), (4, 32)):
        owned = [[int(p) for p in solution(rank, ranks, length)] for rank in range(ranks)]
        if sorted(p for one in owned for p in one) != list(range(length)):
            raise Wrong(f"{ranks} devices, {length} positions: each position belongs to one device, here {owned}.")
        work = [sum(p + 1 for p in one) for one in owned]
        if len(set(work)) > 1:
            raise Wrong(f"{ranks} devices, {length} positions: pairs of query and key are {work}, and should be equal.")
        runs = max(sum(b != a + 1 for a, b in pairwise(one)) + 1 for one in owned)
        if runs > 2:
            raise Wrong(f"{ranks} devices, {length} positions: a device has {runs} runs of positions, two are enough.")


def expert_rows(solution: Solution) -> None:
    """Beside a loop over all tokens."""
    random = Random(11)
    for ranks, experts in ((1, 4), (2, 4), (4, 8)):
        chosen = [[sorted(random.sample(range(experts), 2)) for _ in range(6)] for _ in range(ranks)]
        expected = np.zeros((ranks, ranks), dtype=int)
        for rank, tokens in enumerate(chosen):
            for token in tokens:
                for target in {expert // (experts // ranks) for expert in token}:
                    expected[rank, target] += 1
        _same(np.asarray(solution(chosen, ranks, experts)), expected, f"{ranks} devices, {experts} experts, {chosen}")


def column_row(solution: Solution) -> None:
    """Two products with a GELU between them, beside one device; one all-reduce of the output alone."""
    random = np.random.default_rng(15)
    for ranks in (1, 2, 4):
        x, up, down = random.normal(size=(3, 4)), random.normal(size=(4, 8)), random.normal(size=(8, 4))
        calls: list[tuple[str, int]] = []
        found = run_devices(solution, [(x, up, down, _gelu)] * ranks, calls)
        for rank, answer in enumerate(found):
            _same(np.asarray(answer), _gelu(x @ up) @ down, f"Output of device {rank} of {ranks}")
        if ranks > 1 and calls != [("all-reduce", 12)]:
            raise Wrong(f"One all-reduce of the 12 numbers of the output is enough; it asks for {calls}.")


def vocabulary_loss(solution: Solution) -> None:
    """Cross entropy beside one device; nothing as large as the vocabulary may be sent."""
    random = np.random.default_rng(16)
    for ranks, scale in ((1, 1.0), (2, 1.0), (4, 1000.0)):
        logits, targets = scale * random.normal(size=(3, 8)), random.integers(0, 8, 3)
        high = logits.max(axis=1, keepdims=True)
        expected = np.log(np.exp(logits - high).sum(axis=1)) + high[:, 0] - logits[np.arange(3), targets]
        parts = np.split(logits, ranks, axis=1)
        calls: list[tuple[str, int]] = []
        found = run_devices(solution, [(part, targets) for part in parts], calls)
        for rank, answer in enumerate(found):
            _same(np.asarray(answer), expected, f"Logits of about ±{scale:g}, losses of device {rank} of {ranks}")
        if any(size > 9 or kind == "all-gather" for kind, size in calls):
            raise Wrong(f"Three numbers for each of the 3 rows are enough to send; it asks for {calls}.")


def buckets(solution: Solution) -> None:
    """When the last gradient is summed, by an event after the other."""
    random = Random(17)
    for count in (1, 5, 12):
        backward = [random.uniform(1, 3) for _ in range(count)]
        sizes = [random.randint(1, 9) for _ in range(count)]
        for bucket, rate in ((1, 2.0), (10, 2.0), (10, 50.0), (1000, 5.0)):
            clock = link = 0.0
            waiting = 0
            for place in reversed(range(count)):
                clock += backward[place]
                waiting += sizes[place]
                if waiting >= bucket or place == 0:
                    link = max(link, clock) + waiting / rate
                    waiting = 0
            given = f"backward {[round(b, 2) for b in backward]}, bytes {sizes}, bucket {bucket}, {rate:g} bytes/s"
            _same(solution(list(backward), list(sizes), bucket, rate), max(clock, link), given)


def layout(solution: Solution) -> None:
    """The fastest of all degrees that fit, by a price of three terms."""
    for devices, heads, layers, room in (
        (8, 8, 8, 40.0),
        (16, 4, 6, 12.0),
        (8, 8, 8, 1.0),
        (4, 3, 5, 100.0),
        (8, 3, 5, 40.0),
    ):

        def seconds(tp: int, pp: int, dp: int) -> float:
            return 8.0 / (tp * pp * dp) + 0.02 * (tp - 1) + 0.03 * (pp - 1) + 0.01 * dp

        def size(tp: int, pp: int, dp: int) -> float:
            return 64.0 / (tp * pp) + 8.0 / dp

        fitting = [
            (tp, pp, devices // (tp * pp))
            for tp, pp in product(range(1, devices + 1), repeat=2)
            if devices % (tp * pp) == 0
            and heads % tp == 0
            and layers % pp == 0
            and size(tp, pp, devices // (tp * pp)) <= room
        ]
        best = min(fitting, key=lambda degrees: seconds(*degrees), default=None)
        found = solution(devices, heads, layers, room, seconds, size)
        given = f"{devices} devices, {heads} heads, {layers} layers, {room:g} GB"
        if best is None and found is not None:
            raise Wrong(f"{given}: nothing fits, and it says {found}; return None.")
        if best is not None and (found is None or tuple(found) not in fitting or seconds(*found) > seconds(*best)):
            raise Wrong(f"{given}: it says {found}, and (tp, pp, dp) = {best} is right.")


def discovered_rule(solution: Solution) -> None:
    """Operators whose rules are known: with halves that stand side by side, that add up, or do neither."""

    def softmax(x: Any) -> Any:
        return np.exp(x) / np.exp(x).sum(axis=2, keepdims=True)

    operators: dict[str, tuple[Callable[[Any], Any], list[str]]] = {
        "the exponential": (np.exp, ["parts", "parts", "parts"]),
        "a running sum along dim 1": (lambda x: np.cumsum(x, axis=1), ["parts", "no", "parts"]),
        "the softmax along dim 2": (softmax, ["parts", "parts", "no"]),
        "the sum over dim 0": (lambda x: x.sum(axis=0, keepdims=True), ["sum", "parts", "parts"]),
        "the sum of squares over dims 0 and 2": (
            lambda x: np.square(x).sum(axis=(0, 2), keepdims=True),
            ["sum", "parts", "sum"],
        ),
        "the mean over dim 2": (lambda x: x.mean(axis=2, keepdims=True), ["parts", "parts", "no"]),
        "the largest number of dim 1": (lambda x: x.max(axis=1, keepdims=True), ["parts", "no", "parts"]),
    }
    for name, (f, expected) in operators.items():
        for shape in ((4, 6, 8), (2, 2, 2)):
            found = solution(f, shape)
            if found is None or list(found) != expected:
                raise Wrong(f"For {name}, with an input of shape {shape}, it says {found!r:.160}; {expected} is right.")


def _gelu(x: Any) -> Any:
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


_ALL: tuple[Callable[[Solution], None], ...]
_ALL = (ring_all_reduce, matmul_rule, min_plus, layering, pipeline, one_f_one_b, zero_1_step, recompute, online_softmax)
_ALL += (zig_zag, expert_rows, column_row, vocabulary_loss, buckets, layout, discovered_rule)
_ALL += (rule_of_thumb, layout_that_runs, three_measurements)
CHECKS = {check.__name__.replace("_", "-"): check for check in _ALL}
"""Task -> its check."""
