"""`ax.layouts`: every uniform layout of a model on a cluster, priced by the one cost model."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from alpa_explore.baselines.layout import Layout
from alpa_explore.cluster import Cluster, Link
from alpa_explore.cluster.precisions import recipe_of, tensors_of
from alpa_explore.errors import CancelledError, OptionError
from alpa_explore.execution.executors import Executor
from alpa_explore.execution.progress import ProgressCallback, TaskCount
from alpa_explore.graph import full_precision
from alpa_explore.inter_op.options import check_like_nodes
from alpa_explore.models.catalog import CatalogEntry, entry
from alpa_explore.planner.resources import Resources
from alpa_explore.store.cache import SolveCache, default_folder
from alpa_explore.store.code_version import code_version
from alpa_explore.uniform_layouts import tuning
from alpa_explore.uniform_layouts.enumeration import enumerate_layouts, leanest
from alpa_explore.uniform_layouts.ranking import Layouts, ModelPrices, PricedLayout, ranked
from alpa_explore.uniform_layouts.works import READ_BY, READ_WITH, Works, check_dtype


def layouts(
    model: str,
    cluster: Cluster | str,
    *,
    global_batch: int | None = None,
    sequence: int | None = None,
    precision: str | None = None,
    scheduler: Any = None,
    cache: bool = True,
    progress: ProgressCallback | None = None,
    partial: Callable[[Layouts], None] | None = None,
    cancel: threading.Event | None = None,
    known_alone: bool = False,
) -> Layouts:
    """Every uniform layout of `model` on `cluster`: TP × PP × DP × CP × EP × expert TP × microbatch × interleaving ×
    ZeRO × recomputation, with seconds, bytes, and why one does not fit; `uniform_layouts.enumeration` says which exist.

    `model` is a catalogue name, or the path of a Hugging Face config.json.
    `global_batch`, `sequence` and `precision` are by default those of the model. Where no layout fits,
    `Layouts.larger` has those of as many nodes as it takes. `partial` gets what is known some times a second; once
    `cancel` is set, what is known by then is the answer, and CancelledError is raised where nothing is. With
    `known_alone` nothing is captured: CancelledError where it would have to be. `scheduler` and `cache` are those of
    `ax.plan`.
    OptionError where the batch cannot be divided, the precision is not one of 16 bits or less, or the model is no
    sequence of blocks.
    """
    cluster = cluster if isinstance(cluster, Cluster) else Cluster.parse(cluster)
    with Executor(scheduler) as executor:
        question = Question.of(model, global_batch, sequence, precision, cache=cache)
        resources = Resources(executor=executor, store=None, progress=progress, cancel=cancel)
        answer = question.answer(cluster, resources, partial=partial, known_alone=known_alone)
        if not answer.ranked:
            raise no_layout(question, cluster)
        if not answer.whole:
            return answer
        if answer.best is not None:
            return replace(answer, on_faster_links=question.on_faster_links(answer))

        def on_more_nodes(larger: Layouts) -> None:
            nonlocal answer
            answer = replace(answer, larger=larger)
            if partial is not None:
                partial(answer)

        try:
            larger = question.larger(cluster, resources, partial=on_more_nodes, known_alone=known_alone)
        except CancelledError:
            if known_alone:
                raise
            return answer
        return replace(answer, larger=larger)


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A model, a batch and a precision, asked of one cluster after the other; works are read once."""

    global_batch: int
    precision: str
    prices: ModelPrices

    @property
    def model(self) -> CatalogEntry:
        """The model."""
        return self.prices.works.model

    @property
    def sequence(self) -> int:
        """Tokens of a sample; 1 where it is an image."""
        works = self.prices.works
        return works.structure.tokens if works.structure is not None else self.model.sequence or 1

    @classmethod
    def of(
        cls, model: str, global_batch: int | None, sequence: int | None, precision: str | None, *, cache: bool
    ) -> Question:
        """The question, checked."""
        if not isinstance(model, str):
            raise OptionError(
                "Layouts are enumerated for a model that can be built with few of its blocks",
                found=type(model).__name__,
                remedy="Give a name that `alpa-explore models` lists, or the path of a Hugging Face config.json; a "
                "model of your own is planned by `ax.plan`.",
            )
        known = entry(model, sequence)
        batch = known.global_batch if global_batch is None else global_batch
        if isinstance(batch, bool) or not isinstance(batch, int) or batch < 1:
            raise OptionError(
                "The global batch must be a number of samples", found=repr(global_batch), remedy="Give 1 or more."
            )
        asked = known.precision if precision is None else precision
        dtype = full_precision(tensors_of(asked) or asked)
        if dtype == "float32":
            raise OptionError(
                "Layouts are priced with weights of 16 bits, as the runs that the prices are held against",
                found=f"precision {asked}",
                remedy="Give bf16, fp16, or a precision of products such as fp8.",
            )
        if not cache:
            return cls(global_batch=batch, precision=asked, prices=ModelPrices(Works(known, dtype)))
        kept = _kept_prices(known, dtype, code_version(READ_BY, READ_WITH), default_folder())
        return cls(global_batch=batch, precision=asked, prices=kept)

    def answer(
        self,
        cluster: Cluster,
        resources: Resources,
        *,
        partial: Callable[[Layouts], None] | None = None,
        only: Callable[[tuple[Layout, ...]], Sequence[Layout]] | None = None,
        known_alone: bool = False,
    ) -> Layouts:
        """All layouts on a cluster, or `only` some of them; without any where the batch has no division. Those that
        were priced before `cancel` was set, where some were. `known_alone` as for `Works.prepare`."""
        check_like_nodes(cluster, "A uniform layout divides a model equally", "Give a cluster of one kind of nodes.")
        if recipe_of(self.precision):
            cluster = cluster.in_precision(self.precision)
        else:
            check_dtype(cluster.device, self.prices.works.dtype)
        works = self.prices.works
        structure = works.read_structure(resources, known_alone=known_alone)
        asked: Sequence[Layout] = enumerate_layouts(structure, cluster, self.global_batch)
        if only is not None:
            asked = only(tuple(asked))
        works.prepare(((cluster, layout) for layout in asked), resources, known_alone=known_alone)
        errors = {a: error for a in asked if isinstance(error := works.of(cluster, a), OptionError)}
        reasons = ((f"TP {a.tensor} · CP {a.context} · EP {a.expert}", error) for a, error in errors.items())
        refused = tuple(dict.fromkeys(f"{degrees}: {error.what}: {error.found}" for degrees, error in reasons))
        asked = [layout for layout in asked if layout not in errors]
        if not asked and errors:
            raise next(iter(errors.values()))
        prices = self.prices.on(cluster)
        priced: list[PricedLayout] = []
        said, counter = time.monotonic(), TaskCount("layouts", len(asked), resources.progress)
        for number, layout in enumerate(asked):
            if number % tuning.SAYS_EVERY == 0:
                now = time.monotonic()
                if number:
                    counter.add(tuning.SAYS_EVERY)
                if resources.cancel is not None and resources.cancel.is_set():
                    if not priced:
                        raise CancelledError("The layouts were cancelled", found="none was priced", remedy="Ask again.")
                    return self._layouts(cluster, priced, refused, whole=False)
                if partial is not None and priced and now - said > tuning.PARTIAL_SECONDS:
                    partial(self._layouts(cluster, priced, refused, whole=False))
                    said = now
            priced.append(prices.price(layout))
        counter.add(len(asked) - counter.done)
        return self._layouts(cluster, priced, refused, whole=True)

    def on_faster_links(self, found: Layouts) -> PricedLayout | None:
        """The fastest of an answer on `faster_links`; None where none fits, and for a cluster of more levels of links.
        No layout takes less than half of its time there: where half of the next one's is no better, none of the rest
        is."""
        if found.cluster.levels:
            return None
        prices = self.prices.on(faster_links(found.cluster))
        best: PricedLayout | None = None
        for slower in [p for p in found.fitting if not p.tight] or found.fitting:
            if best is not None and slower.seconds / 2 >= best.seconds:
                break
            priced = prices.price(slower.layout)
            if best is None or priced.seconds < best.seconds:
                best = priced
        return best

    def larger(
        self, cluster: Cluster, resources: Resources, *, partial: Callable[[Layouts], None], known_alone: bool = False
    ) -> Layouts | None:
        """The layouts on the fewest nodes, doubled in turn from those of `cluster`, on which the leanest one fits."""
        nodes = 2 * cluster.nodes
        while nodes * cluster.devices_per_node <= tuning.MOST_DEVICES:
            more = cluster.with_changes(nodes=nodes)
            quiet = replace(resources, progress=None)
            lean = self.answer(more, quiet, only=leanest, known_alone=known_alone)
            if lean.best is not None:
                partial(replace(lean, whole=False))
                found = self.answer(more, resources, partial=partial, known_alone=known_alone)
                return replace(found, on_faster_links=self.on_faster_links(found)) if found.whole else found
            nodes *= 2
        return None

    def _layouts(
        self, cluster: Cluster, priced: Sequence[PricedLayout], refused: tuple[str, ...], *, whole: bool
    ) -> Layouts:
        prices = self.prices.on(cluster)
        return Layouts(
            model=self.model.name,
            cluster=cluster,
            global_batch=self.global_batch,
            sequence=prices.structure.tokens,
            precision=self.precision,
            ranked=ranked(priced),
            sizes=prices.structure.sizes,
            case=prices.case,
            whole=whole,
            refused=refused,
        )


@lru_cache(maxsize=tuning.KEPT_MODELS)
def _kept_prices(model: CatalogEntry, dtype: str, code_version: str, folder: Path) -> ModelPrices:
    return ModelPrices(Works(model, dtype, SolveCache(folder, code_version=code_version)))


def faster_links(cluster: Cluster) -> Cluster:
    """The same with twice the bandwidth between nodes; of one node, inside it."""
    name = "between_nodes" if cluster.nodes > 1 else "inside_node"
    link: Link = getattr(cluster, name)
    return cluster.with_changes(**{name: replace(link, bandwidth=2 * link.bandwidth)})


def no_layout(question: Question, cluster: Cluster) -> OptionError:
    """No division of the batch uses all devices."""
    return OptionError(
        "No uniform layout divides the model and the batch over all devices",
        found=f"{question.model.name} with a global batch of {question.global_batch} on {cluster}",
        remedy="Give a global batch that the devices divide, or another number of nodes.",
    )
