"""The published schema of plan files (plan.schema.json), and whether a document satisfies it.

fastjsonschema compiles the schema to Python; importing, compiling and checking take 0.3 s where jsonschema alone takes
2.3 s (a GPT of 1.3 billion parameters, 2,186 operators). Only the part of a document that the compiled check refuses is
given to jsonschema, for the wording of its messages.
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
        return _in_words(document, refusal)
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


def _in_words(document: Any, refusal: fastjsonschema.JsonSchemaValueException) -> str:
    """jsonschema's message about the innermost list item or property that holds what was refused."""
    import jsonschema  # late: it takes longer to import than a plan takes to read

    # For draft 2020-12, too, 2.0 would be an integer.
    integers = jsonschema.Draft202012Validator.TYPE_CHECKER.redefine(
        "integer", lambda _checker, value: isinstance(value, int) and not isinstance(value, bool)
    )
    validator = jsonschema.validators.extend(jsonschema.Draft202012Validator, type_checker=integers)
    schema, part, place = _innermost(document, refusal.path[1:])
    for error in validator({**schema, "$defs": plan_schema()["$defs"]}).iter_errors(part):
        at = (place + error.json_path.removeprefix("$")).removeprefix(".")
        return f"{at}: {_shortened(error.message)}"
    # jsonschema accepts what fastjsonschema refuses: in Python's `re`, `$` also matches before a final newline.
    return f"{place.removeprefix('.')}: {_shortened(refusal.message.removeprefix(str(refusal.name)).strip())}"


def _innermost(document: Any, path: list[str]) -> tuple[Mapping[str, Any], Any, str]:
    """The subschema, the part of the document and its place, as far down `path` as the schema names what is there."""
    schema, part, place = _resolved(plan_schema()), document, ""
    for key in path:
        properties, items = schema.get("properties", {}), schema.get("items")
        if isinstance(part, dict) and key in part and key in properties:
            schema, part, place = _resolved(properties[key]), part[key], f"{place}.{key}"
        elif isinstance(part, list) and isinstance(items, dict) and key.isdecimal() and int(key) < len(part):
            schema, part, place = _resolved(items), part[int(key)], f"{place}[{key}]"
        else:
            break
    return schema, part, place


def _resolved(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    if "$ref" not in schema:
        return schema
    resolved: Mapping[str, Any] = plan_schema()["$defs"][schema["$ref"].removeprefix("#/$defs/")]
    return resolved


def _shortened(message: str) -> str:
    if len(message) <= tuning.MESSAGE_CHARACTERS:
        return message
    return f"{message[:60]} … {message[-90:]}"
