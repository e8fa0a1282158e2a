"""The attempts of a run, whether a failure may be followed by another one, and whether lost hosts are back.

The first attempt is in the folder of the run itself, each later one in a folder of its own there (`attempt-2`): what
still runs on a host that is cut off cannot write into it. `attempts.json` says why they ended.
"""

import json
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from alpa_explore.cluster import Cluster
from alpa_explore.errors import AlpaExploreError, OptionError, RunError
from alpa_explore.graph import TrainingGraph
from alpa_explore.inter_op.options import PipelineOptions
from alpa_explore.planner.plan import plan_request
from alpa_explore.planner.request import PlanRequest
from alpa_explore.planner.resources import Running
from alpa_explore.plans.plan import Plan
from alpa_explore.plans.rebuild import graph_of
from alpa_explore.runtime import tuning
from alpa_explore.runtime.folder import replace_text
from alpa_explore.runtime.targets.target import Ranks

Replan = Callable[[Plan, Cluster], Plan]
"""(plan that no longer fits, cluster that is left) -> a plan for it."""


def plan_again(plan: Plan, cluster: Cluster, graph: TrainingGraph | None, *, allow_import: bool) -> Plan:
    """The planner's plan for `cluster`, with the settings of `plan`, apart from demands on stages and their submeshes,
    which were made for another cluster. `graph` is needed for a model without a recipe. Raises as `ax.plan` does."""
    if graph is None or plan.details is not None:
        graph = graph_of(plan, allow_import=allow_import)
    before = plan.options.pipeline
    pipeline = PipelineOptions(
        paper=before.paper,
        communication=before.communication,
        schedule=before.schedule,
        stages_per_submesh=before.stages_per_submesh,
        tied_weights=before.tied_weights,
    )
    # In natural order, unless the graph is in another: the devices that are left may be no multiple of those.
    request = PlanRequest.again(replace(plan.options, pipeline=pipeline), graph, cluster, None)
    with Running(scheduler="serial").resources() as resources:
        return plan_request(request, resources)


def cluster_left(plan: Plan, nodes: int, devices_per_node: int) -> Cluster:
    """The cluster of a plan with fewer devices. OptionError for one of unlike nodes: which are left is not known."""
    if plan.cluster.others:
        raise OptionError(
            "Hosts of a cluster of unlike nodes were lost, and which kinds are left is not known",
            found=f"{nodes} × {devices_per_node} devices of {plan.cluster}",
            remedy="Plan for the hosts that are left, as in '1x8:h100', and launch that plan with resume=.",
        )
    return plan.cluster.resized(nodes, devices_per_node)


def check_replanned(new: Plan, old: Plan, cluster: Cluster) -> None:
    """OptionError where a plan is of another model than the one before, or needs more devices than are left."""
    if new.model.name != old.model.name or new.model.parameters != old.model.parameters:
        raise OptionError(
            "The new plan is of another model",
            found=f"{new.model.name} in place of {old.model.name}",
            remedy="Let replan= plan the same model.",
        )
    if new.cluster.devices > cluster.devices:
        raise OptionError(
            "The new plan needs more devices than are left",
            found=f"{new.cluster}, {cluster.devices} are left",
            remedy="Let replan= plan for the cluster that it is given.",
        )


def words(plan: Plan) -> str:
    """A plan in a few words: '2 stages on 1x2:cpu: 1x1, 1x1'."""
    count = len(plan.stages)
    shapes = ", ".join(f"{'x'.join(map(str, s.submesh))} {s.device}".rstrip() for s in plan.stages)
    return f"{count} stage{'s' * (count > 1)} on {plan.cluster}: {shapes}"


ATTEMPTS = "attempts.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Retry:
    """The end of an attempt after which the run went on: a failure, or lost hosts that are back."""

    attempt: int
    """The number of the attempt that ended, from 1."""
    reason: str
    first_step: int
    """The step with which the next attempt began."""
    lost_steps: int
    """Steps that were done and are done again."""
    where: str
    """The plan and the hosts of the next attempt, where they are other ones; else empty."""
    folder: Path
    """Of the next attempt."""
    failed: bool = True
    """False where the attempt was ended because all hosts answered again."""

    @property
    def ending(self) -> str:
        """How the attempt ended: 'failed' or 'was ended'."""
        return "failed" if self.failed else "was ended"

    def __str__(self) -> str:
        steps = "1 step is lost" if self.lost_steps == 1 else f"{self.lost_steps} steps are lost"
        where = f", {self.where}" if self.where else ""
        return (
            f"attempt {self.attempt} {self.ending}: {self.reason} Attempt {self.attempt + 1} goes on from step "
            f"{self.first_step} ({steps}){where}, in {self.folder}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """An attempt to bring a run to its end."""

    folder: Path
    ranks: tuple[int, ...]
    first_step: int
    prepare: Callable[[], object]
    start: Callable[[], Ranks]
    where: str = ""
    """See `Retry`."""
    all_back: Callable[[], bool] | None = None
    """Asks whether all hosts answer that the run began with; None where this attempt has all of them."""


Again = Callable[[AlpaExploreError | None, int], Attempt]
"""(the error of the last attempt, or None where all hosts answer again; its number) -> the next attempt. An
AlpaExploreError says why there can be none."""


class HostsBack:
    """Asks again and again, in a thread of its own, whether all hosts of a run answer again."""

    def __init__(self, all_back: Callable[[], bool]) -> None:
        self.found, self._closed = threading.Event(), threading.Event()
        threading.Thread(target=self._look, args=(all_back,), name="alpa-explore hosts", daemon=True).start()

    def _look(self, all_back: Callable[[], bool]) -> None:
        while not self._closed.wait(tuning.HOSTS_BACK_SECONDS) and not self.found.is_set():
            with suppress(AlpaExploreError):  # the scheduler does not answer now; the attempt itself may go on
                if all_back():
                    self.found.set()

    def close(self) -> None:
        """Ask no more."""
        self._closed.set()


def check_again(error: AlpaExploreError, attempt: int, retries: int) -> None:
    """RunError where no other attempt may follow attempt number `attempt`, which ended with `error`."""
    if not error.may_pass:
        raise RunError("Not retried", found="it would happen again", remedy="Correct the cause.")
    if attempt > retries:
        raise RunError(
            "Not retried",
            found=f"this was attempt {attempt} of {retries + 1}",
            remedy="Allow more --retries (retries=).",
        )


def ended_for_good(error: AlpaExploreError, why: AlpaExploreError) -> AlpaExploreError:
    """`error`, with the reason why no other attempt follows it."""
    about = f"{why.what}: {why.found}" if why.what == "Not retried" else f"Not retried: {why}"
    final = type(error)(error.what, found=error.found, remedy=f"{error.remedy} {about.rstrip('.')}.")
    for note in getattr(error, "__notes__", ()):
        final.add_note(note)
    final.__cause__ = error.__cause__
    return final


def write_attempts(home: Path, retries: tuple[Retry, ...]) -> None:
    """Write attempts.json into the folder of the run."""
    told = [{**asdict(retry), "folder": retry.folder.name} for retry in retries]
    replace_text(home / ATTEMPTS, json.dumps(told, indent=1, ensure_ascii=False))
