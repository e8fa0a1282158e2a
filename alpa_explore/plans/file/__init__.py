"""The plan file: JSON that a person can read and compare, and that is safe to open when a stranger wrote it.

- `plan.schema.json`: the published schema; `schema` checks a document against it.
- `document`: a plan as a JSON document and back, and its text, written whole or not at all; keys of earlier versions
  get their present names here.
- `read`: the file itself; size limits and error messages, and the
  check of what a schema cannot express: ranges, sums, disjoint devices.
- `tuning`: the limits.

A new key of the document needs a default in its record, so that older files still open, and a line in the schema.
Nothing that is read is executed or imported. `read_plan` builds the class that it is given: `plans.plan` gives `Plan`.
"""
