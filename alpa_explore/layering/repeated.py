"""The repeated blocks of a model (`h.0`, `h.1`, … of a transformer), where its layers naturally begin."""

from __future__ import annotations

from alpa_explore.graph import TrainingGraph


def repeated_modules(graph: TrainingGraph) -> tuple[str, ...]:
    """Paths of the largest numbered family of modules, in the order of the forward pass; empty where there is none.

    A family is all of `path.0`, `path.1`, …; of two equally large families the outer one is taken.
    """
    families: dict[str, dict[str, None]] = {}
    for operator in graph.forward_operators:
        parts = operator.module.split(".")
        for place, part in enumerate(parts):
            if part.isdecimal():
                families.setdefault(".".join(parts[:place]), {})[".".join(parts[: place + 1])] = None
    largest = max(families, key=lambda f: (len(families[f]), -f.count(".")), default=None)
    return tuple(families[largest]) if largest is not None and len(families[largest]) > 1 else ()
