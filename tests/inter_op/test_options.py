"""The options of the pipeline: each does what brute force does with it, changes something, and is off by default."""

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest

from alpa_explore.cluster import Cluster, submeshes
from alpa_explore.errors import OptionError
from alpa_explore.inter_op.options import PipelineOptions, check_options
from alpa_explore.inter_op.pipeline_dp import pipeline_dp
from alpa_explore.inter_op.schedule_terms import SCHEDULES, SIMULATED_AS, ScheduleTerms
from alpa_explore.inter_op.stage_table import best_pipeline, stage_table
from alpa_explore.intra_op.stage.recomputation import Recomputation
from alpa_explore.pricing.stage_costs import StageCosts
from alpa_explore.schedules.catalog import V_SHAPES, build_schedule
from alpa_explore.schedules.closed_form import closed_form
from alpa_explore.schedules.simulator.memory import memory_curve
from alpa_explore.schedules.simulator.simulate import simulate
from alpa_explore.schedules.simulator.times import StageTimes
from tests.inter_op.brute_force import brute_force, check, paper, random_costs


def test_the_papers_mode_is_the_paper_and_elsewhere_sends_and_tied_weights_count():
    assert (paper().communication, paper().tied_weights) == (False, False)
    assert (PipelineOptions().communication, PipelineOptions().tied_weights) == (True, True)
    for seed in range(20):
        costs, cluster = random_costs(seed)
        devices = [m.devices for m in costs.submeshes]
        plain = pipeline_dp(costs.latency_table(4), devices, cluster.devices, 4)
        found = best_pipeline(costs, cluster, paper(), 4)
        assert (found.total_seconds, found.stages) == (plain.total_seconds, plain.stages)
        assert np.array_equal(stage_table(costs, cluster, paper(), 4), costs.latency_table(4))


@pytest.mark.parametrize("numbered", [False, True])
def test_a_stage_has_the_submesh_that_was_pinned(numbered):
    def options_of(costs, _cluster, rng):
        piece = costs.submeshes[int(rng.integers(len(costs.submeshes)))]
        if not numbered:
            stage = int(rng.choice([0, -1, -2]))
            return paper(stage_submeshes=((stage, piece.nodes, piece.devices_per_node),))
        count = int(rng.integers(1, costs.num_layers + 1))
        stage = int(rng.integers(-count, count))
        return paper(num_stages=count, stage_submeshes=((stage, piece.nodes, piece.devices_per_node),))

    def allowed(options, costs, stages):
        ((stage, nodes, devices),) = options.stage_submeshes
        if options.num_stages not in (None, len(stages)):
            return False
        if not -len(stages) <= stage < len(stages):
            return True  # a stage that is not there is not pinned
        piece = costs.submeshes[stages[stage][2]]
        return (piece.nodes, piece.devices_per_node) == (nodes, devices)

    check(
        options_of,
        lambda options, costs, *_: {"allowed": lambda stages: allowed(options, costs, stages)},
        seeds=range(120),
    )


@pytest.mark.parametrize("schedule", ["gpipe", "1f1b-overlap"])
def test_a_schedule_decides_how_many_microbatches_a_stage_holds(schedule):
    def held(place, b):
        return b if schedule == "gpipe" else min(b, place + (place - 1))

    check(
        lambda *_: paper(schedule=schedule),
        lambda _options, _costs, _cluster, b: {"held": lambda place, _depth: held(place, b)},
        seeds=range(200),
        changed_at_least=5,
    )


def test_no_schedule_holds_more_than_there_are_or_less_than_one():
    for schedule, place, b in itertools.product(SCHEDULES, range(1, 6), range(1, 6)):
        for depth in range(place, 6):
            held = ScheduleTerms(schedule=schedule, num_microbatches=b).held(place, depth)
            least = ScheduleTerms(schedule="1f1b", num_microbatches=b).held(place, depth)
            assert (1 if schedule in ("v-half", "v-min") else least) <= held <= b


def interleaved(turns, b):
    """The schedule for brute force: groups of microbatches are full, and every submesh has layers for each turn."""
    return {
        "held": lambda place, depth: min(2 * (place - 1) + (turns - 1) * depth + 1, turns * b) / turns,
        "allowed": lambda stages: (
            b % len(stages) == 0 and (len(stages) == 1 or all(last - first + 1 >= turns for first, last, _ in stages))
        ),
        "bubble": turns,
    }


@pytest.mark.parametrize("turns", [2, 3])
def test_an_interleaved_schedule_has_a_smaller_bubble_and_holds_runs_of_its_stages(turns):
    check(
        lambda *_: paper(schedule="interleaved-1f1b", stages_per_submesh=turns),
        lambda _options, _costs, _cluster, b: interleaved(turns, b),
        seeds=range(120),
    )


@pytest.mark.parametrize(("recomputes", "bubble"), [(False, 3), (True, 2)])
def test_a_zero_bubble_schedule_has_a_smaller_bubble_and_holds_as_many_as_there_are_stages(recomputes, bubble):
    def recomputing(costs):
        return replace(costs, versions=(Recomputation.of_layers(range(costs.num_layers) if recomputes else ()),))

    restaged = check(
        lambda *_: paper(schedule="zb-h1"),
        lambda _options, _costs, _cluster, b: {
            "held": lambda _place, depth: min(depth, b),
            "bubble": bubble,
            "allowed": lambda stages: len(stages) <= b,
        },
        counts=(2, 4, 30),
        change=recomputing,
    )
    assert restaged > 5


def v_shape(schedule, b):
    """The V shapes for brute force, from their published memory and their bubble where b ≥ the number of stages."""
    held = {
        "zb-v": lambda depth: depth,
        "v-half": lambda depth: (depth + 2) // 2,
        "v-min": lambda depth: (depth + 4) // 3,
        "dualpipe-v": lambda depth: depth + (depth > 1),
    }[schedule]
    sixths = {
        "zb-v": lambda depth: depth - 1,
        "v-half": lambda depth: (0, 3)[depth - 1] if depth < 3 else 3 * depth - 4,
        "v-min": lambda depth: 0 if depth == 1 else 4 * depth - (5 if depth % 3 else 3),
        "dualpipe-v": lambda depth: depth - 1,
    }[schedule]
    share = {"zb-v": 6, "v-half": 2, "v-min": 1.5, "dualpipe-v": 6}[schedule]

    def allowed(stages):
        longest = len(stages) == 1 or all(last > first for first, last, _ in stages)
        return longest and (schedule != "dualpipe-v" or len(stages) == 1 or b >= 2 * len(stages))

    return {
        "held": lambda _place, depth: min(held(depth), b),
        "allowed": allowed,
        "bubble": share,
        "more_rounds": lambda depth: sixths(depth) / 6 - (depth - 1) / share,
    }


@pytest.mark.parametrize("schedule", V_SHAPES)
def test_a_v_shape_has_its_bubble_and_its_memory_in_the_plan(schedule):
    restaged = check(
        lambda *_: paper(schedule=schedule),
        lambda _options, _costs, _cluster, b: v_shape(schedule, b),
        counts=(8, 12, 30),
    )
    assert restaged > 5


def test_dual_pipe_has_equal_submeshes_and_the_bubble_of_the_report_in_the_plan():
    """Bubble (P/2 − 1)(F&B + B − 3W), here a third of t each; PP + 1 activations (2412.19437, table 2)."""
    feasible = changed = 0
    for seed in range(120):
        costs, cluster = random_costs(seed)
        b = (8, 12, 30)[seed % 3]
        costs = replace(costs, copies=2)
        if str(cluster).startswith("3x2") and costs.num_layers < 6:
            with pytest.raises(OptionError, match="with 6 layers or more"):
                best_pipeline(costs, cluster, paper(schedule="dualpipe"), b)
            continue
        found = best_pipeline(costs, cluster, paper(schedule="dualpipe"), b)
        expected = brute_force(
            costs,
            cluster,
            b,
            held=lambda _place, depth, b=b: min(depth + 1, b),
            allowed=lambda stages, b=b: (
                len(stages) % 2 == 0 and len({shape for *_, shape in stages}) == 1 and b >= 2 * len(stages)
            ),
            bubble=6,
            more_rounds=lambda depth: (depth / 2 - 1) / 3 - (depth - 1) / 6,
        )
        assert found.total_seconds == pytest.approx(expected, rel=1e-12), seed
        feasible += found.feasible
        one_copy = best_pipeline(replace(costs, copies=1), cluster, paper(), b)
        changed += found.stages != one_copy.stages
    assert feasible > 20
    assert changed > 20


def test_dual_pipe_on_what_it_cannot_run_on_says_what_to_ask_for_instead():
    costs, _ = random_costs(0)
    with pytest.raises(OptionError, match="another number of copies"):
        best_pipeline(costs, Cluster.parse("1x4:v100"), paper(schedule="dualpipe"), 8)
    for cluster, options, b, remedy in (
        ("1x3:v100", {}, 8, "dualpipe-v"),
        ("1x4:v100", {"num_stages": 3}, 8, "2 or 4 stages"),
        ("1x4:v100", {"num_stages": 4}, 6, "B = 8 or more"),
        ("1x4:v100", {}, 9, "B = 8 or 10"),
        ("1x4:v100+1x4:a100", {}, 8, "nodes of one kind"),
    ):
        with pytest.raises(OptionError) as raised:
            check_options(paper(schedule="dualpipe", **options), Cluster.parse(cluster), 8, b)
        assert remedy in raised.value.remedy, raised.value


THIRDS, RECOMPUTING = (1.0, 1.0, 1.0), (1.0, 2.0, 1.0)
PARTS = {
    "interleaved-1f1b": (1.0, 1.0, 2.0),
    "zb-h1": THIRDS,
    "zb-h1 recomputing": RECOMPUTING,
    **dict.fromkeys((*V_SHAPES, "dualpipe"), THIRDS),
    **{f"{name} recomputing": RECOMPUTING for name in (*V_SHAPES, "dualpipe")},
}


@pytest.mark.parametrize("name", [*PARTS, "1f1b", "1f1b-overlap", "gpipe"])
def test_what_the_planner_says_of_equal_stages_is_what_the_simulator_and_the_formula_say(name):
    schedule = name.split()[0]
    parts = PARTS.get(name, (1.0, 1.0, 1.0))
    total = sum(parts)
    for depth, b, turns in itertools.product(range(1, 6), (1, 2, 3, 4, 6, 8, 12), (2, 3)):
        terms = ScheduleTerms(
            schedule=schedule, num_microbatches=b, stages_per_submesh=turns, recomputes="recomputing" in name
        )
        if depth not in terms.depths(depth):
            with pytest.raises(OptionError, match="does not exist"):
                terms.check_depth(depth)
            continue
        terms = replace(terms, num_stages=depth)
        planned = pipeline_dp(
            uniform(depth, total * terms.turns),
            [1],
            depth,
            b,
            bubble_divisor=terms.bubble_divisor,
            more_rounds=terms.more_rounds,
        ).total_seconds
        assert planned == pytest.approx(terms.iteration_seconds([total * terms.turns] * depth), rel=1e-12)
        if depth == 1 and schedule in V_SHAPES:
            continue  # one stage runs 1F1B
        table = build_schedule(
            SIMULATED_AS.get(schedule, schedule),
            depth,
            b,
            stages_per_submesh=turns if schedule == "interleaved-1f1b" else None,
        )
        one = StageTimes(
            forward_seconds=parts[0],
            backward_input_seconds=parts[1],
            backward_weight_seconds=parts[2],
            activation_bytes=1.0,
        )
        timeline = simulate(table, [one] * table.num_stages)
        assert planned == pytest.approx(timeline.makespan_seconds, rel=1e-12)
        form = closed_form(table, [one] * table.num_stages)
        if form.exact or schedule not in (*V_SHAPES, "dualpipe"):
            assert planned == pytest.approx(form.seconds, rel=1e-12)
        runs = [memory_curve(timeline, submesh).held.max() for submesh in range(depth)]
        if schedule in (*V_SHAPES, "dualpipe"):  # the most that any submesh holds, which not all of them reach
            runs = [max(runs)] * depth
        assert [terms.held(depth - p, depth) for p in range(depth)] == [
            n / terms.turns if schedule == "interleaved-1f1b" else math.ceil(n / terms.turns) for n in runs
        ]
        if schedule == "interleaved-1f1b" and depth > 1:  # the last submesh has one of the head beside the others
            head = [one] * (table.num_stages - 1) + [replace(one, activation_bytes=1000.0)]
            held = terms.held_in_turns(1, depth)
            most = memory_curve(simulate(table, head), depth - 1).activation_bytes.max()
            assert most == sum(held[:-1]) + 1000.0 * held[-1]


def uniform(depth, seconds):
    """A table in which every layer is a stage of its own."""
    table = np.full((depth, depth + 1, 1, depth), np.inf)
    for k in range(depth):
        table[k, k + 1] = seconds
    return table


def test_a_schedule_that_does_not_exist_for_the_stages_is_refused_with_a_way_out():
    costs, cluster = random_costs(0)
    for options, b in (
        (paper(schedule="interleaved-1f1b", num_stages=2), 3),
        (paper(schedule="zb-h1", num_stages=2), 1),
    ):
        with pytest.raises(OptionError, match="Ask for 1 stages"):
            check_options(options, cluster, costs.num_layers, b)
        assert not best_pipeline(costs, cluster, options, b).feasible


def test_each_stage_that_reads_a_tied_weight_but_the_first_pays_one_sum_an_iteration():
    def drawn(seed, costs):
        """Weights with readers anywhere: at both ends as an embedding's, or three in the middle."""
        rng = np.random.default_rng(seed)
        layers = costs.num_layers
        ends = ((0, layers - 1), 1e11 * float(rng.uniform(0.1, 2)))
        some = tuple(sorted(int(k) for k in rng.choice(layers, size=min(3, layers), replace=False)))
        return (ends, (some, 1e11 * float(rng.uniform(0.1, 2))))[: 1 + seed % 2]

    changed = 0
    for seed in range(100):
        costs, cluster = random_costs(seed)
        b = (1, 4, 30)[seed % 3]
        costs = replace(costs, tied_weights=drawn(seed, costs))
        link = cluster.inside_node if cluster.nodes == 1 else cluster.between_nodes

        def once(stages, costs=costs, link=link):
            groups = [
                {i for i, (f, e, _) in enumerate(stages) for k in readers if f <= k <= e}
                for readers, _ in costs.tied_weights
            ]
            return sum(
                (len(group) - 1) * (2 * link.latency_seconds + size / link.bandwidth)
                for group, (_, size) in zip(groups, costs.tied_weights, strict=True)
            )

        options = paper(tied_weights=True, schedule=("1f1b", "zb-h1")[seed % 4 // 3])
        bubble = 3 if options.schedule == "zb-h1" else 1
        found = best_pipeline(costs, cluster, options, b)
        expected = brute_force(
            costs,
            cluster,
            b,
            once=once,
            bubble=bubble,
            held=(lambda _place, depth, b=b: min(depth, b)) if bubble > 1 else None,
            allowed=lambda stages, b=b, bubble=bubble: bubble == 1 or len(stages) <= b,
        )
        assert found.total_seconds == pytest.approx(expected, rel=1e-12), seed
        if found.feasible:
            stages = [(first, end - 1, shape) for first, end, shape in found.stages]
            assert found.once_seconds == pytest.approx(once(stages), rel=1e-12)
            rest = found.sum_latency_seconds / bubble + (b - 1 / bubble) * found.t_max_seconds
            assert found.total_seconds == pytest.approx(rest + found.once_seconds, rel=1e-12)
        changed += found.stages != best_pipeline(costs, cluster, replace(options, tied_weights=False), b).stages
    assert changed > 5


@pytest.mark.parametrize("turns", [1, 2])
def test_communication_adds_what_a_stage_receives_over_its_share_of_the_links_each_time_a_microbatch_comes(turns):
    def extra(costs, cluster, stage):
        first, last, shape = stage
        directions = int(first > 0) + int(last < costs.num_layers - 1)
        if directions == 0:
            return 0.0
        devices = costs.submeshes[shape].devices
        if cluster.nodes == 1:
            rate, wait = cluster.inside_node.bandwidth * devices, cluster.inside_node.latency_seconds
        else:
            rate = cluster.between_nodes.bandwidth * devices / cluster.devices_per_node
            wait = cluster.between_nodes.latency_seconds
        return turns * (directions * wait + costs.received_bytes[first, last] / rate)

    check(
        lambda *_: paper(communication=True, schedule="interleaved-1f1b" if turns > 1 else "1f1b"),
        lambda _options, costs, cluster, b: (
            {"extra": lambda stage: extra(costs, cluster, stage)} | (interleaved(turns, b) if turns > 1 else {})
        ),
        seeds=range(100),
    )


def test_the_space_of_submeshes_leaves_out_other_numbers_of_nodes():
    check(
        lambda *_: paper(submesh_space="power-of-two"),
        lambda _options, costs, *_: {"allowed": lambda stages: all(costs.submeshes[m].nodes != 3 for *_, m in stages)},
        seeds=range(3, 240, 4),  # 3 nodes
        changed_at_least=6,
    )
    assert [p.nodes for p in submeshes(Cluster.parse("8x2:v100"), "power-of-two")] == [1, 1, 2, 4, 8]


def test_options_alone_and_together_are_those_of_brute_force():
    def options_of(costs, _cluster, rng):
        cuts, count, tolerance, all_held = rng.random(4) < (0.5, 0.5, 0.6, 0.3)
        return paper(
            cuts=(int(rng.integers(1, costs.num_layers)),) if cuts else (),
            num_stages=int(rng.integers(1 + cuts, costs.num_layers + 1)) if count else None,
            imbalance_tolerance=float(rng.choice([0.0, 0.05, 0.2, 0.5, 2.0])) if tolerance else None,
            schedule="gpipe" if all_held else "1f1b",
        )

    def allowed(options, costs, cluster, stages):
        if options.num_stages not in (None, len(stages)) or not set(options.cuts) <= {first for first, _, _ in stages}:
            return False
        if options.imbalance_tolerance is None:
            return True
        work = [sum(costs.layer_flops[f : e + 1]) / sum(costs.layer_flops) for f, e, _ in stages]
        share = [costs.submeshes[m].devices / cluster.devices for _, _, m in stages]
        factor = (1 + options.imbalance_tolerance) * (1 + 1e-9)
        return all(s / factor <= w <= s * factor for w, s in zip(work, share, strict=True))

    restaged = check(
        options_of,
        lambda options, costs, cluster, b: {
            "allowed": lambda stages: allowed(options, costs, cluster, stages),
            "held": (lambda _place, _depth: b) if options.schedule == "gpipe" else None,
        },
        seeds=range(240),
        changed_at_least=50,
    )
    assert restaged > 50


@pytest.mark.parametrize(
    ("options", "found"),
    [
        ({"schedule": "other"}, "schedule"),
        ({"schedule": "interleaved-1f1b", "stages_per_submesh": 1}, "two stages on a submesh"),
        ({"submesh_space": "other"}, "space"),
        ({"imbalance_tolerance": -0.1}, "tolerance"),
        ({"imbalance_tolerance": math.nan}, "tolerance"),
        ({"num_stages": 0}, "num_stages=0"),
        ({"num_stages": 5}, "num_stages=5"),
        ({"cuts": (0,)}, "layer 0"),
        ({"cuts": (4,)}, "layer 4"),
        ({"cuts": (1, 2), "num_stages": 2}, "2 cuts"),
        ({"stage_submeshes": ((0, 1, 3),)}, "1x3"),
        ({"stage_submeshes": ((1, 1, 2),)}, "without num_stages"),
        ({"stage_submeshes": ((-5, 1, 2),)}, "stage -5"),
        ({"stage_submeshes": ((0, 1, 2), (-2, 1, 4)), "num_stages": 2}, "two for stage"),
    ],
)
def test_options_that_nothing_satisfies_are_named_with_a_remedy(options, found):
    with pytest.raises(OptionError, match=found):
        check_options(paper(**options), Cluster.parse("1x4:v100"), 4)


def test_what_a_plan_does_not_know_is_asked_for_again():
    costs, cluster = random_costs(3)
    unknown = StageCosts(
        num_layers=costs.num_layers,
        submeshes=costs.submeshes[:-1],
        device_memory_bytes=100,
        candidates={k: v for k, v in costs.candidates.items() if k[2] < len(costs.submeshes) - 1},
    )
    with pytest.raises(OptionError, match="Plan again"):
        best_pipeline(unknown, cluster, paper(), 4)


def test_the_objective_has_no_sends_of_a_file_that_does_not_record_them():
    costs, cluster = random_costs(3)
    unknown = replace(costs, received_bytes={})
    with_sends = best_pipeline(unknown, cluster, PipelineOptions(), 4)
    assert with_sends.stages == best_pipeline(costs, cluster, paper(), 4).stages


def test_partitions_near_the_best_are_named_among_them_what_is_best_without_sends():
    others = 0
    for seed in range(40):
        costs, cluster = random_costs(seed)
        costs = replace(costs, received_bytes={key: 3 * size for key, size in costs.received_bytes.items()})
        found = best_pipeline(costs, cluster, PipelineOptions(num_stages=2), 30)
        free = best_pipeline(costs, cluster, paper(num_stages=2), 30)
        assert found.stages not in found.near
        assert len(set(found.near)) == len(found.near)
        if free.stages and free.stages != found.stages:
            assert free.stages in found.near
            others += 1
    assert others > 3
