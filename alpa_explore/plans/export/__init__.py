"""A plan in the form of other tools: `torch_code` writes it as PyTorch DTensor placements.

An export reads a `PlanValue` and returns text. It imports `report` for names and phrases, never `file`.
"""
