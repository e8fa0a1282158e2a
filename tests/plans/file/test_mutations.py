"""Plan files changed at random: each is read right, or refused as a plan file by name; no other error comes out."""

import json
import random
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from alpa_explore.errors import PlanFileError, ScheduleError
from alpa_explore.plans.file.document import plan_text
from alpa_explore.plans.file.schema import plan_schema, unknown_keys
from alpa_explore.plans.plan import Plan, load_plan
from tests.plans.example import example_plan
from tests.plans.mutation import HUGE, mutated, places, text_of

CLUSTERS = ("2x4:v100", "1x4:h100", "2x4:gb200", "8x8:b200")
EACH = 40
"""Mutations of one test."""


@pytest.fixture(scope="module")
def plans() -> dict[str, tuple[Plan, dict[str, Any]]]:
    found = {cluster: example_plan(cluster, num_layers=2, blocks=2) for cluster in CLUSTERS}
    return {cluster: (plan, json.loads(plan_text(plan))) for cluster, plan in found.items()}


def outcome(text: str, file: Path) -> str:
    """'read' or 'refused'; whatever else a reader raises comes through."""
    file.write_text(text)
    try:
        plan = load_plan(file)
    except PlanFileError as error:
        words = str(error)
    else:
        words = ""
    if words:
        assert str(file) in words
        assert "\n" not in words
        return "refused"
    again = plan_text(plan)
    file.write_text(again)
    assert load_plan(file) == plan, "what was read is a plan, which is written and read again"
    try:
        plan.timeline()
    except ScheduleError:
        return "read"
    return "read"


@pytest.mark.sweep(kept=2)
@pytest.mark.parametrize("number", range(100))
def test_a_plan_file_that_was_changed_anywhere_is_read_or_refused(number, plans, tmp_path) -> None:
    found = set()
    for seed in range(number * EACH, (number + 1) * EACH):
        body, told = mutated(plans[CLUSTERS[seed % len(CLUSTERS)]][1], seed)
        try:
            found.add(outcome(text_of(body), tmp_path / "a.plan.json"))
        except Exception as error:
            raise AssertionError(f"seed {seed}: {told}") from error
    assert found == {"read", "refused"}


def numbers(document: Any) -> Iterator[tuple[Any, Any]]:
    """One place for each path of keys that ends in a number; indices do not count."""
    for part, key in places(document):
        if isinstance(part[key], int | float) and not isinstance(part[key], bool):
            yield part, key


def test_a_number_of_310_digits_is_refused_wherever_it_stands(plans, tmp_path) -> None:
    """And one of 31, which a float can hold."""
    document = deepcopy(plans["1x4:h100"][1])
    draw = random.Random(0).sample(list(numbers(document)), 60)
    by_key = {key: (part, key) for part, key in numbers(document) if isinstance(key, str)}
    for value in (HUGE, -HUGE, 10**31):
        for part, key in (*by_key.values(), *draw):
            before, part[key] = part[key], value
            assert outcome(json.dumps(document), tmp_path / "a.plan.json") == "refused", (key, value)
            part[key] = before


def objects(schema: Any, document: Any, place: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """(place, object) of the objects of a document with named keys, the first of each kind."""
    schema = plan_schema()["$defs"][schema["$ref"].removeprefix("#/$defs/")] if "$ref" in schema else schema
    if isinstance(document, dict) and "properties" in schema:
        yield place, document
        for key, inner in schema["properties"].items():
            if key in document:
                yield from objects(inner, document[key], f"{place}.{key}")
    elif isinstance(document, list) and document and isinstance(schema.get("items"), dict):
        yield from objects(schema["items"], document[0], f"{place}[]")
    for option in schema.get("anyOf", ()):
        yield from objects(option, document, place)


@pytest.mark.parametrize("cluster", CLUSTERS)
def test_what_a_later_version_adds_is_ignored_with_a_word(cluster, plans, tmp_path) -> None:
    plan, document = plans[cluster]
    assert unknown_keys(document) == [], "what is written is in the published schema"
    seen = [place for place, _ in objects(plan_schema(), document)]
    assert {".model", ".cluster.device_figures", ".stages[].operators[]", ".costs"} <= set(seen)
    assert (".cluster.device_figures.kernels" in seen) == (cluster != "2x4:v100")
    for place in seen:
        body = deepcopy(document)
        dict(objects(plan_schema(), body))[place]["a_later_figure"] = [1, {"x": None}]
        (tmp_path / "a.plan.json").write_text(json.dumps(body))
        found = load_plan(tmp_path / "a.plan.json")
        (word,) = found.warnings[len(plan.warnings) :]
        assert f"is not known here, and ignored ({place}.a_later_figure)".replace("(.", "(") in word
        assert replace(found, warnings=plan.warnings) == plan
    body = deepcopy(document)
    for operator in body["stages"][0]["operators"]:
        operator |= {f"later_{number}": number for number in range(5)}
    (tmp_path / "a.plan.json").write_text(json.dumps(body))
    assert "5 figures in it are not known here" in load_plan(tmp_path / "a.plan.json").warnings[-1]
    assert "later_2 and 2 more)" in load_plan(tmp_path / "a.plan.json").warnings[-1]


def test_a_plan_of_so_many_microbatches_that_no_timeline_holds_them_is_still_read(plans, tmp_path) -> None:
    """Before, 10⁹ microbatches took a machine's memory."""
    body = deepcopy(plans["2x4:v100"][1])
    body["options"]["num_microbatches"] = 10**9
    assert outcome(json.dumps(body), tmp_path / "a.plan.json") in ("read", "refused")
    with pytest.raises(ScheduleError, match="more tasks than are simulated"):
        load_plan(tmp_path / "a.plan.json").timeline()
