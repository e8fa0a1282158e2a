"""The published schema of plan files (plan.schema.json), and whether a document satisfies it.

fastjsonschema compiles the schema to Python; importing, compiling and checking take 0.3 s where jsonschema takes 2.3 s
(a GPT of 1.3 billion parameters, 2,186 operators).
"""

import json
from collections.abc import Callable, Mapping
from functools import cache
from importlib.resources import files
from typing import Any

import fastjsonschema

from alpa_explore.plans.file import tuning

SCHEMA_FILE = "plan.schema.json"


@cache
def plan_schema() -> Mapping[str, Any]:
    """The published JSON schema of a plan file (draft 2020-12)."""
    schema: Mapping[str, Any] = json.loads((files(__package__) / SCHEMA_FILE).read_text(encoding="utf-8"))
    return schema


def schema_fault(document: Any) -> str | None:
    """Where and how a document violates the schema, as 'costs.candidates[0]: …'; None where it satisfies it."""
    try:
        _compiled_check()(document)
    except fastjsonschema.JsonSchemaValueException as refusal:
        return _in_words(refusal)
    return None


def unknown_keys(document: Any) -> list[str]:
    """The places of keys that the schema does not name, as 'stages[].color', each once: a later version wrote them."""
    found: dict[str, None] = {}
    _unknown(document, plan_schema(), "", found)
    return list(found)


def _unknown(part: Any, schema: Mapping[str, Any], place: str, found: dict[str, None]) -> None:
    schema = _resolved(schema)
    for option in schema.get("anyOf", ()):
        _unknown(part, option, place, found)
    properties, items = schema.get("properties"), schema.get("items")
    if isinstance(part, dict) and properties is not None:
        for key in part.keys() - properties.keys():
            found.setdefault(f"{place}.{key}".removeprefix("."))
        for key in part.keys() & properties.keys():
            if isinstance(part[key], dict | list):
                _unknown(part[key], properties[key], f"{place}.{key}", found)
    elif isinstance(part, list) and isinstance(items, dict) and "properties" in _resolved(items):
        for entry in part:
            _unknown(entry, items, f"{place}[]", found)


@cache
def _compiled_check() -> Callable[[Any], Any]:
    check: Callable[[Any], Any] = fastjsonschema.compile(
        {**_as_draft_4(plan_schema()), "$schema": "http://json-schema.org/draft-04/schema#"}, use_default=False
    )
    return check


def _as_draft_4(part: Any) -> Any:
    """The schema in the keywords of draft 4, under which 2.0 is not an integer (it is in later drafts: a layer 2.0).

    References are replaced by what they name: fastjsonschema formats a path for every call of a referenced schema,
    which makes it 15 times slower on a table of 90,000 candidates.
    """
    if isinstance(part, list):
        return [_as_draft_4(p) for p in part]
    if not isinstance(part, dict):
        return part
    if "$ref" in part:
        return _as_draft_4(_resolved(part))
    schema = {key: _as_draft_4(value) for key, value in part.items() if key != "$defs"}
    if "const" in schema:
        schema["enum"] = [schema.pop("const")]
    if "exclusiveMinimum" in schema:
        schema |= {"minimum": schema["exclusiveMinimum"], "exclusiveMinimum": True}
    if "prefixItems" in schema:
        schema |= {"items": schema.pop("prefixItems"), "additionalItems": schema["items"]}
    if "propertyNames" in schema:
        names = f"^[\\s\\S]{{0,{schema.pop('propertyNames')['maxLength']}}}$"
        schema |= {"patternProperties": {names: schema["additionalProperties"]}, "additionalProperties": False}
    return schema


def _in_words(refusal: fastjsonschema.JsonSchemaValueException) -> str:
    """'costs.candidates[3][4]: -1 must be bigger than or equal to 0'."""
    name = str(refusal.name)
    place = name.removeprefix("data").removeprefix(".")
    if refusal.rule == "required":
        missing = next(key for key in refusal.rule_definition if key not in refusal.value)
        said = f"{missing!r} is missing"
    else:
        said = f"{refusal.value!r} {refusal.message.removeprefix(name).strip()}"
    return f"{place}: {_shortened(said)}".removeprefix(": ")


def _resolved(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    if "$ref" not in schema:
        return schema
    resolved: Mapping[str, Any] = plan_schema()["$defs"][schema["$ref"].removeprefix("#/$defs/")]
    return resolved


def _shortened(message: str) -> str:
    if len(message) <= tuning.MESSAGE_CHARACTERS:
        return message
    return f"{message[:60]} … {message[-90:]}"
