"""Plans and tables as text: every figure in its unit, and nothing that a terminal would act on."""

import re
from dataclasses import replace

import pytest

from alpa_explore import units
from alpa_explore.plans.phrases import logical_mesh_phrase, ranges, stage_phrase
from alpa_explore.plans.plan import Plan
from alpa_explore.plans.report import tables
from alpa_explore.plans.report.error_bands import plan_bands_sentence
from alpa_explore.plans.report.headline import headline
from alpa_explore.plans.report.summary import plan_report
from alpa_explore.plans.report.text import cell, fullest, heading, render_table, sentence
from alpa_explore.units import printable
from tests.plans.example import example_plan


@pytest.fixture(scope="module")
def plan() -> Plan:
    return example_plan()


def test_a_stage_is_named_with_its_layers_and_its_submesh(plan: Plan) -> None:
    named = [stage_phrase(stage) for stage in plan.stages]
    assert named[0] == "stage 0: layer 0 on 1×1"
    assert named[2] == "stage 2: layers 2–4 on 1×4"
    assert logical_mesh_phrase((2, 4)) == "logical mesh 2×4"


def test_the_report_names_stages_figures_passes_and_warnings(plan: Plan) -> None:
    text = plan_report(plan)
    assert "gpt-example" in text
    assert "4 stages (2 on 1 device, 1 on 4 devices, 1 on 2 devices)" in text
    assert "T = Σt + (B−1)·t_max = " in text
    assert "31 × " in text
    assert "capture 2.5 s, layering 40 ms, sharding 31.2 s, pipeline 2 ms" in text
    assert "Warning: aten.cumsum is not known" in text
    rows = [line.split() for line in text.splitlines() if line.strip()[:1].isdigit() and "GiB" in line]
    assert [row[1] for row in rows if len(row) > 5] == ["0", "1", "2–4", "5"]


def test_a_plan_of_one_stage_reads_well() -> None:
    assert sentence(example_plan("1x1:a100")).startswith("One stage on 1 device: ")


def test_control_characters_of_a_stranger_do_not_reach_the_terminal() -> None:
    text = plan_report(example_plan(mark="\x1b[2J\x07\r\u202e"))
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert "gpt-example�[2J���" in text


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        ("latency_seconds", 0.0123, "12.3 ms"),
        ("weight_bytes", 2**31, "2 GiB"),
        ("flops", 2e12, "2 TFLOP"),
        ("memory_fraction", 0.5, "50 %"),
        ("layers", (0, 2), "0–2"),
        ("layers", (3, 3), "3"),
        ("devices", (0, 1, 2, 5), "0–2, 5"),
        ("logical_mesh", (2, 4), "2×4"),
        ("output_shape", (), "scalar"),
        ("stage", None, "–"),
        ("candidates", 12345, "12,345"),
        ("rematerialization", True, "yes"),
        ("inputs", ("S0R", "RR"), "S0R, RR"),
    ],
)
def test_a_cell_is_formatted_by_the_unit_in_its_key(key: str, value: object, expected: str) -> None:
    assert cell(key, value) == expected


def test_headings_leave_the_unit_to_the_figures() -> None:
    assert [heading(k) for k in ("latency_seconds", "peak_bytes", "logical_mesh", "flops")] == [
        "latency",
        "peak",
        "logical mesh",
        "flops",
    ]


def test_tables_are_aligned() -> None:
    lines = render_table([{"name": "a", "count": 1}, {"name": "long", "count": 1000}]).splitlines()
    assert lines == ["name  count", "a         1", "long  1,000"]
    assert render_table([]) == "(nothing)"


def test_small_helpers() -> None:
    assert ranges(()) == ""
    assert printable("a\nb\tc\x7f") == "a b c�"


def test_the_summary_holds_plain_json_values(plan: Plan) -> None:
    import json

    found = json.loads(json.dumps(tables.plan_summary(plan), allow_nan=False))
    assert found["predicted"]["iteration_seconds"] == plan.predicted.iteration_seconds
    assert [row["stage"] for row in found["stages"]] == [0, 1, 2, 3]
    assert found["cluster"] == "2x4:v100"


def test_sums_that_explain_a_figure_give_it(plan: Plan) -> None:
    assert plan.model.tokens > plan.model.samples
    figures = {figure.name: figure for figure in headline(plan)}
    for name in ("samples/s", "tokens/s"):
        first, times = re.findall(r"[\d,]+(?= (?:samples|tokens|microbatches))", figures[name].why)
        product = int(first.replace(",", "")) * int(times.replace(",", ""))
        assert product / plan.predicted.iteration_seconds == pytest.approx(figures[name].value), name


def test_parts_of_microbatches_have_three_digits_in_the_sum_of_the_memory(plan: Plan) -> None:
    stages = tuple(replace(stage, microbatches_held=7 / 3) for stage in plan.stages)
    why = next(figure.why for figure in headline(replace(plan, stages=stages)) if figure.name == "peak memory")
    assert " + 2.33 × " in why


@pytest.mark.parametrize(("share", "tight"), [(0.975, False), (0.985, True), (1.0, True)])
def test_a_plan_that_nearly_fills_its_memory_is_called_tight(plan: Plan, share: float, tight: bool) -> None:
    full = fullest(plan)
    device = replace(plan.cluster.device, memory_bytes=round(full.peak_bytes / share))
    text = sentence(replace(plan, cluster=replace(plan.cluster, device=device)))
    assert ("which is tight" in text) == tight
    if share == 0.985:
        assert f"tight: {units.bytes_(device.memory_bytes - full.peak_bytes)} are left for the allocator" in text


def test_the_overhead_of_the_software_is_told_where_it_is_much_of_the_time() -> None:
    def told(cluster: str, b: int) -> str:
        return plan_bands_sentence(example_plan(cluster, num_microbatches=b))

    assert "of the time is what Megatron-Core adds" in told("1x1:a100@megatron", 1)
    assert "adds to each iteration" not in told("1x1:a100@alpa", 1)
    long = example_plan("1x1:a100@megatron", num_microbatches=2**12)
    assert 2**12 * long.cluster.software.microbatch_seconds + 0.12 < 0.2 * long.predicted.iteration_seconds
    assert "adds to each iteration" not in plan_bands_sentence(long)
