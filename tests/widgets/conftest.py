"""A small plan, a planner that tests can block and release, and figures that record what they were drawn from."""

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import plotly.graph_objects as go
import pytest
from alpa_explore_widgets.explorer import Explorer
from alpa_explore_widgets.figures_ahead import FiguresAhead
from alpa_explore_widgets.session.backend import Backend
from alpa_explore_widgets.session.session import Session
from alpa_explore_widgets.session.settings import Settings
from alpa_explore_widgets.session.sources import Sources
from alpa_explore_widgets.session.state import State
from alpa_explore_widgets.tab_kinds.figure_panel import FigurePanel

from alpa_explore.cluster import Cluster, Submesh
from alpa_explore.errors import AlpaExploreError, CancelledError
from alpa_explore.execution.progress import Progress
from alpa_explore.plans.plan import Plan
from alpa_explore.plans.records import ModelSummary, PlanLayer, PlanOptions, PlanStage, Predicted, Statistics
from alpa_explore.pricing.stage_costs import StageCosts
from tests.waiting import LIMIT_SECONDS, until

LATENCIES = (0.010, 0.014)
"""Seconds of a microbatch of each of the two stages of the small plan."""


def make_plan(
    cluster: Cluster | str = "1x4:v100", *, num_microbatches: int = 8, delta: float = 0.5, num_layers: int | None = None
) -> Plan:
    """Two equal stages; T = Σt + (B − 1) · t_max."""
    cluster = Cluster.parse(cluster) if isinstance(cluster, str) else cluster
    layers, half = num_layers or 4, cluster.devices // 2
    stages = tuple(
        PlanStage(
            index=i,
            layers=(i * layers // 2, (i + 1) * layers // 2 - 1),
            submesh=(1, half),
            logical_mesh=(1, half),
            devices=tuple(range(i * half, (i + 1) * half)),
            latency_seconds=LATENCIES[i],
            microbatch_seconds=LATENCIES[i],
            iteration_seconds=0.0,
            weight_bytes=4 * 2.0**30,
            activation_bytes=2.0**30,
            workspace_bytes=2.0**30,
            microbatches_held=min(2 - i, num_microbatches),
            solution_key="key",
            operators=(),
        )
        for i in range(2)
    )
    total = sum(LATENCIES) + (num_microbatches - 1) * max(LATENCIES)
    return Plan(
        model=ModelSummary(
            name="gpt-tiny",
            recipe="gpt-tiny",
            parameters=10**6,
            model_flops=10**12,
            samples=8,
            tokens=256,
            precision="float16",
            optimizer="adam",
            rematerialization=True,
            content_key="key",
            warnings=(),
        ),
        cluster=cluster,
        options=PlanOptions(num_microbatches=num_microbatches, delta=delta, num_layers=layers, solver="auto"),
        layers=tuple(
            PlanLayer(
                index=i, operators=("mm",), operator_flops=(100,), operator_cut_bytes=(10,), flops=100, cut_bytes=10
            )
            for i in range(layers)
        ),
        stages=stages,
        predicted=Predicted(
            iteration_seconds=total,
            t_max_seconds=max(LATENCIES),
            sum_latency_seconds=sum(LATENCIES),
            bubble_fraction=1 - num_microbatches * sum(LATENCIES) / (2 * total),
            peak_bytes_per_device=max(s.peak_bytes for s in stages),
        ),
        t_max_sweep=(),
        statistics=Statistics(
            solves=12, distinct_solves=3, cached_solves=1, variables=0, constraints=0, seconds=(("sharding", 0.1),)
        ),
        costs=StageCosts(
            num_layers=layers, submeshes=(Submesh(1, half),), device_memory_bytes=16 * 2**30, candidates={}
        ),
    )


@dataclass
class HeldPlanner:
    """A backend whose planner runs while its gate is open, and which records its calls."""

    captures: list[tuple[Any, ...]] = field(default_factory=list)
    plans: list[dict[str, Any]] = field(default_factory=list)
    replans: list[Any] = field(default_factory=list)
    gate: threading.Event = field(default_factory=threading.Event)
    """The planner runs while it is set."""
    replan_gate: threading.Event = field(default_factory=threading.Event)
    started: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    error: Exception | None = None
    """Raised by the next calls."""
    report_replan: Callable[[Progress], None] = field(default=lambda _: None)
    """The progress callback of the last replan."""

    def __post_init__(self) -> None:
        self.gate.set()
        self.replan_gate.set()

    def functions(self) -> Backend:
        return Backend(capture=self.capture, plan=self.plan, replan=self.replan, baseline=self.baseline)

    def capture(self, name: str, microbatch: int, **precision: str) -> Any:
        self.captures.append((name, microbatch, *precision.values()))
        return f"graph of {name}"

    def plan(
        self,
        _graph: object,
        cluster: Cluster,
        *,
        progress: Callable[[Progress], None],
        cancel: threading.Event,
        **options: Any,
    ) -> Plan:
        self.plans.append({"cluster": str(cluster), **options})
        progress(Progress(pass_name="sharding", done=0, total=2, elapsed_seconds=0.0))
        self.started.release()
        until(lambda: self.gate.is_set() or cancel.is_set(), "the test lets it go on")
        if not self.gate.is_set():
            raise CancelledError("Cancelled", found="a test", remedy="None.")
        progress(Progress(pass_name="sharding", done=2, total=2, elapsed_seconds=1.0))
        if self.error is not None:
            raise self.error
        remat = options.pop("rematerialization", True)
        plan_options = {name: options[name] for name in ("num_microbatches", "delta", "num_layers")}
        made = make_plan(cluster, **plan_options)
        return replace(made, model=replace(made.model, rematerialization=remat))

    def baseline(self, _graph: object, cluster: Cluster, kind: str, **options: Any) -> Plan:
        if kind == "megatron":
            raise AlpaExploreError("Nothing fits", found="a test", remedy="None.")
        made = make_plan(cluster, num_microbatches=options["num_microbatches"])
        return replace(made, options=replace(made.options, baseline=kind))

    def replan(
        self,
        plan: Plan,
        *,
        num_microbatches: int,
        delta: float,
        graph: Callable[[], object],
        cancel: threading.Event,
        progress: Callable[[Progress], None],
        cluster: Cluster | None = None,
        **pipeline: Any,
    ) -> Plan:
        self.report_replan = progress
        plan = plan.basis or plan
        if delta != plan.options.delta:
            pipeline |= {"delta": delta}
        self.replans.append((num_microbatches, dict(pipeline)) if pipeline else num_microbatches)
        pipeline.pop("delta", None)
        self.started.release()
        assert self.replan_gate.wait(LIMIT_SECONDS), "nobody released the replan"
        if self.error is not None:
            raise self.error
        options = plan.options
        if delta != options.delta and cancel.is_set():
            raise CancelledError("The plan was cancelled", found="a test", remedy="None.")
        made = make_plan(plan.cluster, num_microbatches=num_microbatches, delta=delta, num_layers=options.num_layers)
        if delta != options.delta:
            made = replace(made, costs=replace(made.costs, complete=False))
        changed = replace(options.pipeline, **pipeline)
        made = replace(made, options=replace(made.options, pipeline=changed))
        return made if cluster in (None, plan.cluster) else replace(made, cluster=cluster, basis=made)


SETTINGS = Settings(
    model="gpt-tiny",
    microbatch=8,
    nodes=1,
    devices_per_node=4,
    device="v100",
    num_microbatches=8,
    delta=0.5,
    num_layers=None,
)


def plan_and_wait(session: Session) -> State:
    """The state once it has a plan, or a fault."""
    session.plan()
    assert session.wait(LIMIT_SECONDS)
    return session.store.state


def set_and_wait(session: Session, **changes: Any) -> State:
    """The state once it has answered other settings."""
    session.set(**changes)
    assert session.wait(LIMIT_SECONDS)
    return session.store.state


def type_and_wait(explorer: Explorer, **values: Any) -> None:
    """As `set_and_wait`, by the controls."""
    for name, value in values.items():
        explorer.controls[name].value = value
        assert explorer.session.wait(LIMIT_SECONDS)


@pytest.fixture
def planner() -> HeldPlanner:
    return HeldPlanner()


@pytest.fixture
def session(planner: HeldPlanner) -> Iterator[Session]:
    functions = planner.functions()
    test_session = Session(SETTINGS, Sources(functions.capture), functions)
    yield test_session
    test_session.cancel()
    planner.gate.set()
    planner.replan_gate.set()
    assert test_session.wait(LIMIT_SECONDS), "a planner thread is left over"


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int, str]]:
    """(tab, B, theme) of every figure that was drawn, in order, in place of the real figures."""
    drawn_figures: list[tuple[str, int, str]] = []

    def draw(self: FigurePanel, state: State, theme: str) -> go.Figure:
        drawn_figures.append((self.title, state.plan.options.num_microbatches, theme))
        return go.Figure(go.Bar(y=[state.plan.options.num_microbatches]))

    kinds: list[type[FigurePanel]] = [FigurePanel]
    for kind in kinds:  # grows while it is walked
        kinds += kind.__subclasses__()
        if "draw" in vars(kind):
            monkeypatch.setattr(kind, "draw", draw)
    return drawn_figures


@pytest.fixture(autouse=True)
def no_figures_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    """No figures of other B are drawn in the background, perhaps beside the next test (`test_figures_ahead`)."""
    monkeypatch.setattr(FiguresAhead, "follow", lambda *_, **__: None)


@pytest.fixture
def explorer(session: Session, drawn: list[tuple[str, int, str]]) -> Explorer:
    """With the tab Cluster selected, whose figure follows B."""
    made = Explorer(session)
    made.go_to_tab("Cluster")
    return made


@pytest.fixture
def show_tab(explorer: Explorer) -> Callable[[str], FigurePanel]:
    """Selects the tab with this title and returns its panel."""

    def show(title: str) -> FigurePanel:
        explorer.go_to_tab(title)
        return explorer.panels[explorer.tabs.selected]

    return show


@pytest.fixture
def with_settings() -> Callable[..., Settings]:
    return lambda **changes: replace(SETTINGS, **changes)


@pytest.fixture
def plan() -> Plan:
    return make_plan()


@pytest.fixture
def user_error() -> AlpaExploreError:
    return AlpaExploreError("Layers cannot be that even", found="delta = 0.01", remedy="The smallest that works: 0.12.")
