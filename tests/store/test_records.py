"""Records come back from JSON as they were, and what does not fit a field is named by its place."""

import enum
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pytest

from alpa_explore.store.records import plain, record


class Kind(enum.StrEnum):
    ONE = "one"


@dataclass(frozen=True)
class Part:
    name: str
    sizes: tuple[int, ...] = ()


@dataclass(frozen=True)
class Whole:
    parts: Sequence[Part]
    points: tuple[tuple[int, float], ...]
    kind: Kind
    by_name: Mapping[str, Part] = field(default_factory=dict)
    beside: Part | None = None


WHOLE = Whole((Part("a", (1, 2)), Part("b")), ((1, 0.5),), Kind.ONE, {"c": Part("c")}, Part("d"))


@pytest.mark.parametrize("checked", [True, False])
def test_a_record_comes_back_as_it_was(checked: bool) -> None:
    body = json.loads(json.dumps(plain(WHOLE)))
    assert record(Whole, body, checked=checked) == WHOLE
    assert record(Whole, {**body, "beside": None, "new": 1}, checked=checked).beside is None


def test_what_is_missing_takes_its_default() -> None:
    assert record(Whole, {"parts": [], "points": [], "kind": "one"}) == Whole((), (), Kind.ONE)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"parts": {}}, r"it\['parts'\] is \{\} in place of a list"),
        ({"parts": [{"name": 1}]}, r"it\['parts'\]\[0\]\['name'\] is 1 in place of a text"),
        ({"parts": [{}]}, r"it\['parts'\]\[0\] has no 'name'"),
        ({"parts": [{"name": "a", "sizes": [-1]}]}, "in place of a whole number"),
        ({"points": [[1]]}, "1 entries in place of 2"),
        ({"kind": "two"}, "'two' is not a valid Kind"),
        ({"by_name": []}, "in place of an object"),
    ],
)
def test_what_does_not_fit_is_named_by_its_place(change: dict[str, object], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        record(Whole, {**json.loads(json.dumps(plain(WHOLE))), **change})
