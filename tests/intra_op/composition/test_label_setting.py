"""The two steps of label setting against their definitions, pair by pair."""

from __future__ import annotations

import numpy as np
import pytest

from alpa_explore.intra_op.composition.label_setting import _Labels, _pairs_below, _undominated


@pytest.mark.parametrize("seed", range(20))
def test_pairs_below_the_bound_are_those_of_all_pairs_in_their_order(seed: int) -> None:
    rng = np.random.default_rng(seed)
    labels, options, states = rng.integers(0, 40), rng.integers(0, 60), rng.integers(1, 6)
    state, left = rng.integers(0, states, labels), rng.integers(0, states + 1, options)
    # Few different values, so that sums are often equal to each other and to the bound.
    reaching = rng.integers(-3, 4, labels) / 7
    remaining = np.where(rng.random(options) < 0.2, np.inf, rng.integers(-3, 4, options) / 7)
    bound = float(rng.choice([rng.integers(-3, 5) / 7, np.inf]))
    label, option = _pairs_below(state, reaching, left, remaining, bound)
    below = reaching[label] + remaining[option] < bound
    all_pairs = [
        (i, j)
        for i in range(labels)
        for j in range(options)
        if state[i] == left[j] and reaching[i] + remaining[j] < bound
    ]
    assert list(zip(label[below], option[below], strict=True)) == all_pairs


@pytest.mark.parametrize("seed", range(20))
def test_labels_are_kept_where_none_of_their_state_is_better_in_both_figures(seed: int) -> None:
    rng = np.random.default_rng(seed)
    count = rng.integers(0, 60)
    figures = [rng.integers(0, 9, count).astype(float) for _ in range(2)]
    labels = _Labels(rng.integers(0, 4, count), *figures, np.arange(count), np.zeros(count, np.int64))
    kept = _undominated(labels)

    def found(s: _Labels) -> set[tuple[float, float, float]]:
        return set(zip(s.state.tolist(), s.seconds.tolist(), s.bytes.tolist(), strict=True))

    best = {
        (s, t, b)
        for s, t, b in found(labels)
        if not any(s == s2 and t2 <= t and b2 <= b and (t2, b2) != (t, b) for s2, t2, b2 in found(labels))
    }
    assert found(kept) == best
    assert len(kept.state) == len(best)
