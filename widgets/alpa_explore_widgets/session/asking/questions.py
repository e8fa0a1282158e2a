"""Questions beside the plan: after a fault for lack of memory, changes with which the model fits, sought in the
background; and the settings of a plan that a mark stands for.
"""

import re
import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from alpa_explore.errors import AlpaExploreError
from alpa_explore.inter_op.options import PipelineOptions
from alpa_explore.inter_op.stage_table import best_pipeline
from alpa_explore.plans.plan import Plan
from alpa_explore.tracing.cancelling import cancelled_by
from alpa_explore_widgets.session.backend import Backend
from alpa_explore_widgets.session.background import NewestWins
from alpa_explore_widgets.session.settings import Settings
from alpa_explore_widgets.session.sources import Sources
from alpa_explore_widgets.session.state import Offer, Offers, StateStore


class FitSearch:
    """Seeks offers for settings that do not fit, for seconds at most; each was found to fit. The newest request
    wins."""

    def __init__(self, store: StateStore, sources: Sources, backend: Backend) -> None:
        self._store, self._sources, self._backend = store, sources, backend
        self.worker: NewestWins[Settings] = NewestWins(self._run, "alpa-explore fit")

    def start(self, settings: Settings) -> None:
        """Seek offers for `settings`."""
        self._store.change(offers=Offers())
        self.worker.submit(settings)

    def forget(self) -> None:
        """Cancel the search and drop its offers."""
        self.worker.cancel()
        self._store.change(offers=None)

    def _run(self, settings: Settings, cancel: threading.Event) -> None:
        found = Offers()
        try:
            with cancelled_by(cancel):
                for found in self._found(settings, cancel):
                    self._show(found, cancel)
        except AlpaExploreError:
            pass  # the fault that is on screen says what failed; there are fewer offers
        finally:
            self._show(replace(found, searching=False), cancel)

    def _show(self, offers: Offers, cancel: threading.Event) -> None:
        with self._store.lock:
            if not cancel.is_set():
                self._store.change(offers=offers)

    def _found(self, settings: Settings, cancel: threading.Event) -> Iterator[Offers]:
        graph, cluster = self._sources.graph(settings), self._sources.cluster(settings)
        found = Offers()
        larger = self._backend.fitting_cluster(graph, cluster, cancel=cancel, **settings.plan_options)
        if larger is not None and larger.found:
            size = (("nodes", larger.cluster.nodes), ("devices_per_node", larger.cluster.devices_per_node))
            button = f"Plan on {larger.cluster.nodes} × {larger.cluster.devices_per_node}"
            found = replace(found, offers=(Offer(found=str(larger), button=button, changes=size),))
        elif larger is not None:
            found = replace(found, at_least=str(larger))
        yield found
        on_larger = len(found.offers)
        for offered in (self._smaller, self._leanest):
            for offer, changed in offered(settings, recomputes=graph.rematerialization):
                changed_graph = self._sources.graph(changed)
                if not cancel.is_set() and self._backend.fits(
                    changed_graph, cluster, cancel=cancel, **changed.plan_options
                ):
                    found = replace(found, offers=(*found.offers, offer))
                    yield found
            if len(found.offers) > on_larger:
                return

    def _smaller(self, settings: Settings, *, recomputes: bool) -> Iterator[tuple[Offer, Settings]]:
        """Settings that hold less on the same cluster."""
        if not recomputes and not settings.rematerialization:
            offer = Offer(
                found="Fits with recomputation",
                button="Plan with recomputation",
                changes=(("rematerialization", True),),
            )
            yield offer, replace(settings, rematerialization=True)
        half = settings.microbatch // 2
        if half in self._sources.microbatches(settings.model):
            count = settings.num_microbatches * settings.microbatch // half
            changes: dict[str, Any] = {"microbatch": half, "num_microbatches": count}
            offer = Offer(
                found=f"Fits with microbatches of {half}, B = {count:,}",
                button=f"Plan with microbatches of {half}",
                changes=tuple(changes.items()),
            )
            yield offer, replace(settings, **changes)

    def _leanest(self, settings: Settings, *, recomputes: bool) -> Iterator[tuple[Offer, Settings]]:
        """Both together, with the smallest microbatches: where neither alone is enough."""
        least = min(self._sources.microbatches(settings.model), default=settings.microbatch)
        if least < settings.microbatch and not recomputes and not settings.rematerialization:
            count = settings.num_microbatches * settings.microbatch // least
            changes: dict[str, Any] = {"rematerialization": True, "microbatch": least, "num_microbatches": count}
            offer = Offer(
                found=f"Fits with recomputation and microbatches of {least}, B = {count:,}",
                button=f"Plan with recomputation, microbatches of {least}",
                changes=tuple(changes.items()),
            )
            yield offer, replace(settings, **changes)


def settings_of_change(plan: Plan, change: str) -> dict[str, Any] | None:
    """Fields of `Settings` and their values: of 'microbatches=16x2' B and the samples of each, of 't_max=0.2' and
    'stage=2-3@1x4' the stages. None where there is no such plan, or the text is none of these."""
    name, _, value = change.partition("=")
    numbers = [int(number) for number in re.findall(r"\d+", value)]
    if name == "microbatches" and len(numbers) == 2:
        return {"num_microbatches": numbers[0], "microbatch": numbers[1]}
    if name == "t_max":
        options = other_stages(plan, t_max=float(value))
    elif name == "stage" and len(numbers) == 4:
        options = other_stages(plan, stage=(numbers[0], numbers[1], numbers[2], numbers[3]))
    else:
        return None
    if options is None:
        return None
    return {name: getattr(options, name) for name in ("cuts", "num_stages", "stage_submeshes")}


def other_stages(
    plan: Plan, *, t_max: float | None = None, stage: tuple[int, int, int, int] | None = None
) -> PipelineOptions | None:
    """The options of the plan with exactly these stages: for `t_max` in seconds those that the sweep evaluated for this
    candidate (of all pipelines whose stages take at most as long, the one with the least Σt); for `stage`, as (first
    layer, last layer, nodes, devices of each), the best pipeline that has it, whatever stages the plan was asked to
    have; under another schedule of those that were compared where none has it under that of the plan. None where the
    stage costs hold no such pipeline.
    """
    costs, b, tried = plan.costs, plan.options.num_microbatches, [plan.options.pipeline]
    if stage is not None:
        from alpa_explore.figures.decisions.stage_costs import compared  # late: plotly takes seconds to import

        tried = compared(plan)
        first, last, *shape = stage
        known = {
            (begin, end, mesh): candidates
            for (begin, end, mesh), candidates in costs.candidates.items()
            if end < first
            or begin > last
            or (begin, end, costs.submeshes[mesh].nodes, costs.submeshes[mesh].devices_per_node)
            == (first, last, *shape)
        }
        costs = replace(costs, candidates=known)
    for options in tried:
        found = best_pipeline(costs, plan.cluster, options, b, under=t_max)
        if found.feasible:
            break
    else:
        return None
    meshes = [costs.submeshes[mesh] for *_, mesh in found.stages]
    return replace(
        options,
        cuts=tuple(begin for begin, *_ in found.stages[1:]),
        num_stages=len(found.stages),
        stage_submeshes=tuple((i, mesh.nodes, mesh.devices_per_node) for i, mesh in enumerate(meshes)),
    )
