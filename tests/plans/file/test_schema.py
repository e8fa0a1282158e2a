"""The compiled check of plan files decides as another library reads the published schema, and names the place."""

import json
import random
from collections.abc import Iterable, Iterator
from copy import deepcopy
from typing import Any

import jsonschema
import pytest

from alpa_explore.plans.file.document import plan_text
from alpa_explore.plans.file.schema import plan_schema, schema_fault
from tests.plans.example import example_plan

VALUES = (
    None,
    True,
    -1,
    0,
    2.0,
    1.5,
    1e31,
    10**31,
    "",
    "x",
    "S0R",
    "RR+P1",
    "x" * 101,
    "x" * 10_001,
    "near",
    [],
    [1],
    [1.0, 2],
    [[0], 1.0],
    [0] * 9,
    {},
    {"a": 1},
)


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    """A plan with few of each thing, so that jsonschema is done soon."""
    body: dict[str, Any] = json.loads(plan_text(example_plan()))
    for stage in body["stages"]:
        stage["operators"] = stage["operators"][:2]
    body["costs"]["candidates"] = body["costs"]["candidates"][:5]
    body["costs"]["tied_weights"] = [[[0, 1], 3.5]]
    body["t_max_sweep"] = body["t_max_sweep"][:3]
    body["options"]["spec_constraints"] = [{"operator": "mm", "kind": "pin", "spec": "RR"}]
    return body


def places(part: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if path:
        yield path
    for key in part if isinstance(part, dict) else range(len(part)) if isinstance(part, list) else ():
        yield from places(part[key], (*path, key))


def damaged(document: dict[str, Any], rng: random.Random) -> dict[str, Any]:
    body = deepcopy(document)
    *path, last = rng.choice(list(places(document)))
    part: Any = body
    for key in path:
        part = part[key]
    kind = rng.random()
    if kind < 0.15:
        del part[last]
    elif kind < 0.25 and isinstance(part, list):
        part.insert(last, rng.choice(VALUES))
    elif kind < 0.3 and isinstance(part, dict):
        part[rng.choice(["new", "x" * 101, "a.b", "{x}", "a[0]"])] = rng.choice(VALUES)
    else:
        part[last] = rng.choice(VALUES)
    return body


def strict_validator() -> Any:
    integers = jsonschema.Draft202012Validator.TYPE_CHECKER.redefine(
        "integer", lambda _checker, value: isinstance(value, int) and not isinstance(value, bool)
    )
    return jsonschema.validators.extend(jsonschema.Draft202012Validator, type_checker=integers)(plan_schema())


def written(path: Iterable[int | str]) -> str:
    """A place as a message names it: stages[0].layers. Other libraries put quotes around odd keys."""
    return "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in path).removeprefix(".")


@pytest.mark.slow
@pytest.mark.sweep(kept=1)
@pytest.mark.parametrize("seed", range(5))
def test_a_damaged_document_is_refused_exactly_when_the_schema_refuses_it(seed: int, document: dict[str, Any]) -> None:
    rng, validator, refused = random.Random(seed), strict_validator(), 0
    for _ in range(60):
        body = damaged(document, rng)
        places = {written(e.absolute_path) for e in validator.iter_errors(body)}
        fault = schema_fault(body)
        assert (fault is None) == (not places), body
        if fault is not None and "" not in places:
            assert fault.startswith(tuple(f"{place}: " for place in places)), (fault, places)
        refused += fault is not None
    assert 20 <= refused < 60


def test_a_spec_with_a_newline_behind_it_is_refused_in_one_line(document: dict[str, Any]) -> None:
    body = deepcopy(document)
    body["stages"][0]["operators"][0]["output"] = "S0R\n"  # re's `$` would let it pass
    assert schema_fault(body) == "stages[0].operators[0].output: 'S0R\\n' cannot be validated by any definition"


def test_a_damaged_row_among_many_candidates_is_named(document: dict[str, Any]) -> None:
    body = deepcopy(document)
    body["costs"]["candidates"] = [list(body["costs"]["candidates"][0]) for _ in range(2_000)]
    body["costs"]["candidates"][1_234][4] = -1
    assert schema_fault(body) == "costs.candidates[1234][4]: -1 must be bigger than or equal to 0"
