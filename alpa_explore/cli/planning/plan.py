"""`alpa-explore plan MODEL --cluster NxM:DEVICE`: plan a model, print a summary, write the plan file and a page.

What was printed and written for the same question before comes from the cache (`KnownAnswer`). The question is
everything on which the answer depends: the model and the cluster with all their figures, every option, and in the
header of the entry a digest of all sources of alpa_explore and of the libraries. An answer holds texts alone: what is
printed, the plan file, the page. So it needs neither a graph nor a solver, and starts no worker. Each text is kept when
it is first asked for; where one of those asked for is missing, the plan is made again from the cached solves, which
gives the same plan.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import re
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from types import FrameType
from typing import TYPE_CHECKING, Any

from alpa_explore import units
from alpa_explore.cli.options import HOSTS, LAYERING, MODEL, QUESTION, STATES, chosen_cluster, chosen_model
from alpa_explore.cli.output import check_file, complain, json_text, write_file
from alpa_explore.cli.planning.from_layout import check_from_layout, chosen_baseline, faster_sentence, with_layout
from alpa_explore.cli.progress_line import ProgressLine
from alpa_explore.cluster import Cluster
from alpa_explore.errors import CancelledError, InfeasiblePlanError, OptionError
from alpa_explore.inter_op.options import AUTO, PipelineOptions
from alpa_explore.models.catalog import CatalogEntry, microbatch_size
from alpa_explore.plans.file.document import OF_ONE_RUN
from alpa_explore.plans.plan import Plan
from alpa_explore.plans.report.summary import plan_report
from alpa_explore.plans.report.tables import plan_summary
from alpa_explore.plans.value import PlanValue
from alpa_explore.schedules.catalog import INTERLEAVED
from alpa_explore.sharding.spec_constraint import mappings, parse_constraints
from alpa_explore.store.cache import SolveCache
from alpa_explore.store.code_version import code_version
from alpa_explore.units import printable

if TYPE_CHECKING:
    from alpa_explore.planner.request import PlanRequest


COMMAND = f"""plan  plan a model on a cluster
    Plan the training of a model on a cluster.
{MODEL}
--cluster NxM:DEVICE (required)  the cluster, as in 2x8:a100, unlike nodes as in 1x8:h100+1x8:a100, or a JSON or TOML
    file; attached: the hosts of --scheduler, whose links are measured (see `alpa-explore nodes`)
{HOSTS}
{QUESTION}
{STATES}
-B --num-microbatches N (count)  microbatches per iteration, a divisor of the global batch (default: the paper's);
    auto: try all and print a table
{LAYERING}
--solver NAME (= auto)  auto, elimination, ilp, highs or cbc; all are exact (default: auto)
--baseline KIND DEGREE=N (many)  instead of planning, a plan by hand: one that `alpa-explore baselines --help` lists,
    with its degrees, such as megatron ep=4, or megatron tp=2 cp=2 exchange=ring; or ring-zigzag, all-gather, ulysses
--from-layout DEGREE=N (many)  start from a uniform layout, as tp=4 pp=2 dp=8 zero=1 chunks=2, or from the fastest of
    all (best): the plan is never slower than it
beyond the paper (see `alpa_explore/inter_op/options.py`):
--cut LAYER (int, several)  start a stage at this layer; may be repeated
--stages N (int)  fix the number of stages
--stage-submesh STAGE=NxM (several)  fix the submesh of a stage, as in 0=1x4; −1 is the last stage
--schedule NAME  auto (default): the fastest of those that the software runs, 1f1b for the paper's; or 1f1b,
    1f1b-overlap, gpipe, interleaved-1f1b, zb-h1, zb-v, v-half, v-min, dualpipe-v or dualpipe (two copies of the
    weights, half of the microbatches from either end): determines memory and bubble
--stages-per-submesh V (int)  for interleaved-1f1b, which it stands for without --schedule: stages on each submesh
    (default: 2)
--paper (yes or no)  T is Eq. 2, ideal, as in the paper: without sends between stages and gradient sums of shared
    weights (default: for the paper's own models on v100; elsewhere T is what an iteration takes)
--tied-weights (yes or no)  count gradient sums of weights that stages share in the objective of the pipeline
    (default: yes, but not with --paper)
--communication (yes or no)  count sends in the objective of the pipeline (default: yes, but not with --paper)
--submeshes SPACE (= all)  all (default), or power-of-two: whole nodes only in numbers that are powers of two
--imbalance X (float)  fraction by which a stage's FLOPs may deviate from its share of the devices
--collective-overlap X (float)  share of the shorter of a collective and the computation beside it that overlaps: 0
    (default) to 1
--expert-imbalance X (float)  mixture of experts: rows of the busiest device over the mean, where devices hold
    different experts (default: 1, an even load)
--expert-capacity X (float)  mixture of experts: rows that each expert computes over the mean, padded or dropped
    (default: none)
--gradient-overlap X (float)  the same for gradient sums and the backward pass
--pin NAME=SPEC (several)  fix the sharding spec of an operator's output or of a stored parameter, as in addmm_3=S0R
    (see `show --stage`)
--forbid NAME=SPEC (several)  exclude a sharding spec, in the form of --pin
--zigzag N (int)  sequences in zig-zag order for N devices from the inputs on, 1 for natural order (default: the
    faster one, where devices share a sequence)
--remat --rematerialization NAME (exclusive)  what the backward pass computes again: none, norms, attention, mlp,
    parts joined by + as norms+attention, half or full (every second block, every block; all is full), checkpoints
    (what the model itself checkpoints: its default), layers (every layer, as in the paper), auto (what each stage
    needs); by default as the model says
--no-remat (exclusive, remat = none)  the same as --remat none
options:
--scheduler WHERE  where to solve: serial, threads, processes, or tcp://… of a Dask scheduler (default: by amount of
    work); with --cluster attached it names the hosts, and problems are solved here
--no-cache  neither read nor write the cache of solves
-o --output FILE  write the plan file
--html FILE  write one self-contained page with all figures
--json  print the summary as JSON"""
EPILOG = """example:
  alpa-explore plan gpt-1.3b --cluster 1x4:v100 -B 128 --delta 0.5 --layers 6 -o a.plan.json --html a.html
  alpa-explore plan gpt-350m --cluster 1x4:v100 -B auto --global-batch 256 --layers 4
  alpa-explore plan llama-tiny --cluster 1x4:cpu -B 2 --global-batch 4 --baseline megatron cp=2 exchange=ring
  alpa-explore plan gpt-tiny --cluster attached --scheduler tcp://127.0.0.1:8786 -B 4

exit codes: 0 done, 1 no plan fits in memory (with the nearest change that would), 2 bad input"""


ATTACHED = "attached"
"""The cluster that is made of the hosts of a Dask scheduler."""
_REMATERIALIZATION: dict[str | None, bool | str | None] = {"all": True, "none": False}
"""Names for `rematerialization`, where they are not its own."""

_OF_DEVICE = ("collective_overlap", "gradient_overlap", "expert_imbalance", "expert_capacity")
"""Options that are figures of the device."""
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


def run(options: argparse.Namespace) -> int:
    """Plan; 0, or 130 when Ctrl-C stopped it."""
    # The input is checked before the planner, and with it torch, is imported.
    for path, what in ((options.output, "The plan"), (options.html, "The page")):
        check_file(path, what)
    pipeline, spec_constraints = _pipeline_options(options), parse_constraints(options.pin, options.forbid)
    by_hand = chosen_baseline(options, pipeline, mappings(spec_constraints))
    check_from_layout(options, pipeline, mappings(spec_constraints))
    model = chosen_model(options)
    microbatches = model.num_microbatches if options.num_microbatches is None else options.num_microbatches
    batch = model.global_batch if options.global_batch is None else options.global_batch
    sizes = "microbatches of all sizes"
    if microbatches != "auto":
        sizes = f"B = {microbatches:,} microbatches of {units.samples(microbatch_size(model, microbatches, batch))}"
    if options.cluster != ATTACHED:
        _check_not_attached(options)
    changes = {name: x for name in _OF_DEVICE if (x := getattr(options, name)) is not None}
    cluster = chosen_cluster(options, _attached(options) if options.cluster == ATTACHED else None, **changes)
    known = None
    if by_hand is None and not options.no_cache and options.cluster != ATTACHED:
        known = KnownAnswer(options, model, cluster)
        if (texts := known.texts()) is not None:
            print(f"{model.name} on {cluster}, {sizes}: planned before, read from the cache", file=sys.stderr)
            _give(texts, options)
            return 0
        for warning in known.warnings:
            complain(warning)
    with ProgressLine(sys.stderr) as line, _stoppable(lambda: line.begun) as cancel:
        line.say(f"planning {model.name} on {cluster}, {sizes}")
        from alpa_explore.planner.interface import planned
        from alpa_explore.planner.request import PlanRequest
        from alpa_explore.planner.resources import Running

        request = PlanRequest(
            model=model.reference,
            cluster=cluster,
            num_microbatches=microbatches,
            global_batch=batch,
            delta=options.delta,
            num_layers=options.layers,
            solver=options.solver,
            rematerialization=_REMATERIALIZATION.get(options.remat, options.remat),
            precision=options.precision,
            zigzag=options.zigzag,
            pipeline=pipeline,
            spec_constraints=spec_constraints,
        )
        running = Running(
            scheduler=options.scheduler if options.cluster != ATTACHED else None,
            cache=not options.no_cache,
            progress=line,
            cancel=cancel,
        )
        try:
            plan = planned(request, running) if by_hand is None else by_hand(request, running)
            plan = with_layout(plan, options, request, running, line) or plan
        except CancelledError as error:
            if not cancel.is_set():
                raise
            line.say(f"stopped {line.where}")
            line.say(f"alpa-explore: {printable(str(error))}")
            if isinstance(error.known, Plan):
                line.say("the best plan so far, which is not proven to be the best:")
                _give(_texts(error.known, options), options)
            return 130
        except InfeasiblePlanError as error:
            found = with_layout(None, options, request, running, line)
            if found is None and (error.over_bytes is None or microbatches == "auto" or by_hand is not None):
                raise
            if found is not None:
                _give(_texts(found, options), options)
                return 0
            line.say(f"looking for more {cluster.device.name} on which it fits; Ctrl-C stops this")
            raise _with_fitting_cluster(error, request, cancel, cache=not options.no_cache) from error
    texts = _texts(plan, options, "" if known is None else faster_sentence(plan, options, model.reference))
    if known is not None:
        known.keep(plan, texts)
    _give(texts, options)
    return 0


def _texts(plan: Plan, options: argparse.Namespace, faster: str = "") -> dict[str, str]:
    """The texts of the answer that the options ask for, by kind; `faster` is a sentence about a
    layout that is faster."""
    from alpa_explore.questions.microbatches import microbatches_report, microbatches_table

    texts = {}
    if options.output is not None:
        from alpa_explore.plans.file.document import plan_text

        texts[PLAN_FILE] = plan_text(plan)
    if options.html is not None:
        from alpa_explore.figures.page import page_html

        texts[PAGE] = page_html(plan)
    if options.json:
        more: dict[str, Any] = {"microbatches": microbatches_table(plan)} if plan.microbatches else {}
        more |= {"faster_layout": faster} if faster else {}
        texts[PRINTED_JSON] = json_text({**plan_summary(plan), **more})
    else:
        tried = microbatches_report(plan) if plan.microbatches else ""
        texts[PRINTED] = "\n\n".join(filter(None, (plan_report(plan), tried, faster)))
    return texts


def _give(texts: Mapping[str, str], options: argparse.Namespace) -> None:
    """Write the requested files, print their names to stderr, and print the answer."""
    write_file(options.output, lambda: texts[PLAN_FILE], "The plan")
    write_file(options.html, lambda: texts[PAGE])
    print(texts[PRINTED_JSON if options.json else PRINTED])


def _attached(options: argparse.Namespace) -> Cluster:
    """The cluster of the hosts of --scheduler, with their links measured now."""
    from alpa_explore.attached.attach import attach

    if options.scheduler is None:
        raise OptionError(
            "Attached hosts are those of a Dask scheduler",
            found="--cluster attached without --scheduler",
            remedy="Give --scheduler tcp://HOST:PORT.",
        )
    with ProgressLine(sys.stderr) as line:
        attached = attach(
            options.scheduler,
            hosts=options.hosts.split(",") if options.hosts else (),
            allow_remote=options.allow_remote,
            progress=line,
        )
    for remark in attached.remarks(options.devices_per_node):
        complain(remark)
    return attached.cluster(options.devices_per_node)


def _check_not_attached(options: argparse.Namespace) -> None:
    given = {"--hosts": options.hosts, "--devices-per-node": options.devices_per_node}
    given["--allow-remote"] = options.allow_remote or None
    if named := [name for name, value in given.items() if value is not None]:
        raise OptionError(
            f"{named[0]} is for attached hosts",
            found=f"{named[0]} with --cluster {options.cluster}",
            remedy="Give --cluster attached --scheduler ADDRESS, or leave it out.",
        )


def _with_fitting_cluster(
    error: InfeasiblePlanError, request: PlanRequest, cancel: threading.Event, *, cache: bool
) -> InfeasiblePlanError:
    """`error`, with the larger cluster on which the model fits."""
    from alpa_explore.planner.fitting import with_fitting_cluster
    from alpa_explore.planner.plan import captured
    from alpa_explore.planner.resources import Running

    with Running(cache=cache, cancel=cancel).resources() as resources:
        graph = captured(request, resources)
    return with_fitting_cluster(error, graph, request, cancel=cancel)


def _pipeline_options(options: argparse.Namespace) -> PipelineOptions:
    pinned = []
    for text in options.stage_submesh:
        match = re.fullmatch(r"(-?\d+)=(\d+)[x×](\d+)", text)
        if match is None:
            raise OptionError(
                "A stage's submesh is written STAGE=NxM",
                found=repr(text),
                remedy="For example 0=1x4 for the first stage on 4 devices, or --stage-submesh=-1=2x8 for the last.",
            )
        pinned.append((int(match[1]), int(match[2]), int(match[3])))
    return PipelineOptions(
        cuts=tuple(options.cut),
        num_stages=options.stages,
        stage_submeshes=tuple(pinned),
        paper=options.paper,
        communication=options.communication,
        schedule=options.schedule or (AUTO if options.stages_per_submesh is None else INTERLEAVED),
        submesh_space=options.submeshes,
        imbalance_tolerance=options.imbalance,
        stages_per_submesh=2 if options.stages_per_submesh is None else options.stages_per_submesh,
        tied_weights=options.tied_weights,
    )


@contextlib.contextmanager
def _stoppable(begun: Callable[[], bool]) -> Iterator[threading.Event]:
    """An event that the first Ctrl-C sets. The second Ctrl-C stops at once, as does the first one while no solve has
    `begun` whose result would be kept (a model is being captured)."""
    cancel = threading.Event()
    if threading.current_thread() is not threading.main_thread():  # signals belong to the main thread
        yield cancel
        return
    before = signal.getsignal(signal.SIGINT)

    def stop(number: int, frame: FrameType | None) -> None:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        cancel.set()
        if not begun():
            signal.default_int_handler(number, frame)
        complain("stopping after what is being solved; Ctrl-C again stops at once")

    signal.signal(signal.SIGINT, stop)
    try:
        yield cancel
    finally:
        signal.signal(signal.SIGINT, before)
