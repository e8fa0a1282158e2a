"""`KnownAnswer`: what `alpa-explore plan` printed and wrote for the same question before, from the cache.

The question is everything on which the answer depends: the model and the cluster with all their figures, every option,
and in the header of the entry a digest of all sources of alpa_explore and of the libraries. An answer holds texts
alone: what is printed, the plan file, the page. So it needs neither a graph nor a solver, and starts no worker. Each
text is kept when it is first asked for; where one of those asked for is missing, the plan is made again from the cached
solves, which gives the same plan.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
from collections.abc import Mapping
from functools import cached_property

from alpa_explore.cluster import Cluster
from alpa_explore.models.catalog import CatalogEntry
from alpa_explore.plans.file.document import OF_ONE_RUN
from alpa_explore.plans.value import PlanValue
from alpa_explore.store.cache import SolveCache
from alpa_explore.store.code_version import code_version

_ALL_SOURCES = (".",)
_LIBRARIES = ("highspy", "numba", "numpy", "plotly", "pulp", "torch", "transformers")
_WITHOUT_INFLUENCE = ("run", "output", "html", "json", "model", "hf", "sequence", "cluster")
"""Options that say where the answer goes, or that the model and the cluster hold."""

PRINTED, PRINTED_JSON, PLAN_FILE, PAGE = "printed", "printed as JSON", "plan file", "page"


class KnownAnswer:
    """The texts of the answer to one question, as far as they are known."""

    def __init__(self, options: argparse.Namespace, model: CatalogEntry, cluster: Cluster) -> None:
        given = sorted((name, value) for name, value in vars(options).items() if name not in _WITHOUT_INFLUENCE)
        question = repr((given, model, cluster, sys.version))
        self._key = f"answer {hashlib.blake2b(question.encode(), digest_size=20).hexdigest()}"
        self.wanted = (
            PRINTED_JSON if options.json else PRINTED,
            *((PLAN_FILE,) if options.output is not None else ()),
            *((PAGE,) if options.html is not None else ()),
        )

    @cached_property
    def _store(self) -> SolveCache:
        return open_answers()

    @property
    def warnings(self) -> tuple[str, ...]:
        """What is wrong with the cache. That an entry is of another version is reported with the solves."""
        return tuple(warning for warning in self._store.warnings if "of another version" not in warning)

    def texts(self) -> dict[str, str] | None:
        """The texts that are wanted, if all of them are known."""
        texts = {}
        for kind in self.wanted:
            entry = self._store.get(f"{self._key} {kind}")
            if entry is None or not isinstance(entry.get("text"), str):
                return None
            texts[kind] = entry["text"]
        return texts

    def keep(self, plan: PlanValue, texts: Mapping[str, str]) -> None:
        """Keep the texts of `plan`, unless they hold a warning about this run."""
        if any(warning.startswith(OF_ONE_RUN) for warning in plan.warnings):
            return
        for kind, text in texts.items():
            self._store.put(f"{self._key} {kind}", {"text": text})


def open_answers() -> SolveCache:
    """The cache of answers of this code, with these libraries."""
    return SolveCache(code_version=code_version(_ALL_SOURCES, _LIBRARIES))
