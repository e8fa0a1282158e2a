"""Label setting: the bytes of options, and the step from one block to the next against its definition."""

import numpy as np
import pytest

from alpa_explore.intra_op.composition.block_subproblem import Price
from alpa_explore.intra_op.composition.compose import Composer
from alpa_explore.intra_op.composition.within_memory import tuning
from alpa_explore.intra_op.composition.within_memory.block_slopes import block_slopes
from alpa_explore.intra_op.composition.within_memory.label_setting import Labels, Options, extended, undominated
from alpa_explore.intra_op.stage.stage_graph import slice_stages
from tests.intra_op.composition.test_compose import CHAINS, on

Sum = tuple[int, float, float]
"""State, seconds and bytes of a label."""


@pytest.mark.parametrize("seed", range(40))
def test_labels_kept_are_the_undominated_sums_of_labels_and_options_below_the_bound(seed: int) -> None:
    rng = np.random.default_rng(seed)
    labels, options, states = rng.integers(0, 40), rng.integers(0, 60), rng.integers(1, 6)
    # Few different values, all exact in binary, so that sums are often equal to each other and to the bound.
    before = Labels(
        rng.integers(0, states, labels),
        *(rng.integers(0, 9, labels).astype(float) for _ in range(2)),
        np.arange(labels),
        np.zeros(labels, np.int64),
    )
    option_seconds = np.where(rng.random(options) < 0.2, np.inf, rng.integers(0, 9, options) / 2)
    option_bytes = rng.integers(0, 9, options).astype(float)
    block = Options(
        rng.integers(0, states + 1, options),
        rng.integers(0, 4, options),
        np.zeros(options, np.int64),
        option_seconds,
        option_bytes,
        np.zeros(options),
    )
    behind = rng.integers(0, 4, 4).astype(float)
    price, room = Price(0.5, 0.25, 1), float(rng.integers(0, 12))
    bound = float(rng.choice([rng.integers(0, 20) / 2, np.inf]))

    def sum_of(i: int, j: int) -> Sum:
        return (
            int(block.right[j]),
            float(before.seconds[i] + option_seconds[j]),
            float(before.bytes[i] + option_bytes[j]),
        )

    def cost(s: Sum) -> float:
        return s[1] + price.memory_price * (s[2] - room) + float(behind[s[0]])

    pairs = [(i, j) for i in range(labels) for j in range(options) if before.state[i] == block.left[j]]
    below = {sum_of(i, j) for i, j in pairs if cost(sum_of(i, j)) < bound and np.isfinite(option_seconds[j])}
    best = {s for s in below if not any(s != o and s[0] == o[0] and o[1] <= s[1] and o[2] <= s[2] for o in below)}

    after = extended(before, block, option_seconds, option_bytes, behind, (price, room, bound))
    found = list(zip(after.state.tolist(), after.seconds.tolist(), after.bytes.tolist(), strict=True))
    assert found == sorted(best, key=lambda s: (s[0], s[2]))
    for s, i, j in zip(found, after.previous, after.option, strict=True):
        assert (i, j) in pairs
        assert sum_of(int(i), int(j)) == s


@pytest.mark.sweep(kept=1)
@pytest.mark.slow
@pytest.mark.parametrize("name", ["skips", "mlp"])
def test_slopes_of_costs_are_the_bytes_of_the_best_choices(name: str) -> None:
    chain = CHAINS[name]()
    composer = Composer(chain, slice_stages(chain.layered), on((2, 2)))
    blocks = composer.cutter.of_range(0, chain.layered.num_layers - 1)
    assert blocks is not None
    prices = [Price(0.25, memory_price, 2) for memory_price in (1e-11, 1e-9, 1e-7)]
    tables = composer.tables(prices)
    slopes = block_slopes(tables, blocks, more_held=True)
    step = 1 + tuning.SLOPE_STEP
    dearer = composer.tables([price._replace(memory_price=price.memory_price * step) for price in prices])
    fuller = composer.tables([price._replace(microbatches_held=price.microbatches_held * step) for price in prices])
    several = 0
    for block in dict.fromkeys(blocks):
        table, other, full = (t.of_blocks([block])[0] for t in (tables, dearer, fuller))  # type: ignore[index]  # narrow
        price, left, right = np.nonzero(np.isfinite(table.costs))
        # A least cost is concave in either price: its slope lies between those of the best choices at both.
        now, later, held = (
            np.array([choice.totals for choice in t.choices(price, left, right)]) for t in (table, other, full)
        )
        at = price, left, right
        for found, most, least in (
            (slopes[table].held_bytes[at], now[:, 2] + 2 * now[:, 3], later[:, 2] + 2 * later[:, 3]),
            (slopes[table].more_bytes[at], now[:, 3], held[:, 3]),
        ):
            rounding = 1e-5 * most.max(initial=1.0)
            assert (found <= most + rounding).all()
            assert (found >= least - rounding).all()
        several += len(np.unique(slopes[table].held_bytes[at]))
    assert several > len(blocks), "bytes depend on states and prices"


def test_too_many_labels_at_a_state_are_thinned_out_evenly() -> None:
    many = 3 * tuning.MOST_LABELS
    seconds = np.stack([np.arange(many, 0.0, -1.0), np.full(many, np.inf)])
    row, column = undominated(seconds)
    assert len(row) == tuning.MOST_LABELS
    assert not row.any()
    assert (column[0], column[-1]) == (0, many - 1)
    assert set(np.diff(column)) <= {2, 3, 4}
