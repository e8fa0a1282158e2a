"""What strangers' modules, configs and words found wrong once, and the tests that hold it right today.

    python benchmarks/strangers.py [NUMBER …]

One row a case: its number, what is right, whether its tests say so, how many they are, seconds. Exits with 1 where one
is wrong. What is right is known without this package: plain PyTorch, an operator's FLOPs by hand, bytes of tensors, a
published measurement. All parameters of the tests run, also those of other days.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from pathlib import Path

from alpa_explore.plans.report.text import render_table

ROOT = Path(__file__).resolve().parent.parent
CASES: dict[str, tuple[str, tuple[str, ...]]] = {
    "1": (
        "frozen weights and buffers take their bytes: what does not fit is refused",
        ("intra_op/stage/test_lasting_memory.py",),
    ),
    "2": (
        "complex weights train as in PyTorch, imaginary part and all; their products have four times the FLOPs",
        (
            "runtime/test_plain_module.py::test_the_imaginary_part_of_a_weight_is_trained",
            "zoo/test_zoo.py::test_ranks_train_every_module_and_go_on_from_a_checkpoint[complex weights]",
            "graph/test_counts.py",
        ),
    ),
    "3": (
        "no plan is below a floor of physics: FLOPs, bytes, the busiest link, what is hidden",
        ("plans/report/test_floors.py",),
    ),
    "4": (
        "a plan is called ZeRO-3 by the bytes that are sharded, and its export says so",
        ("plans/report/test_parallelism.py",),
    ),
    "5": (
        "equal blocks that differ only in the backward pass have the gradients of PyTorch, or are refused",
        ("tracing/test_fewer_blocks.py::test_blocks_that_differ_in_what_autograd_records_have_the_gradients_of_torch",),
    ),
    "6": ("autocast of a GPU is traced without one: products in bfloat16", ("tracing/test_autocast.py",)),
    "7": ("torch's checkpoint is recomputed: more time, less memory", ("tracing/test_checkpoints.py",)),
    "8": ("buffers that the forward pass writes are those of PyTorch after two steps", ("runtime/test_buffers.py",)),
    "9": (
        "layouts of a config file end in a table",
        ("cli/test_layouts.py::test_layouts_and_a_plan_of_a_config_file_are_shown",),
    ),
    "14": (
        "configs of the Hub with auto_map of a known type, num_local_experts and an empty rank are read",
        ("models/test_reference.py", "uniform_layouts/test_structure.py"),
    ),
    "15": (
        "layouts price every architecture whose blocks repeat, by the kinds of its blocks",
        ("uniform_layouts/test_structure.py::test_the_kinds_of_blocks_together_are_the_model",),
    ),
    "16": (
        "what the software adds to every iteration is told where it is much of the time",
        ("plans/report/test_text.py::test_the_overhead_of_the_software_is_told_where_it_is_much_of_the_time",),
    ),
    "17": (
        "Llama-2-7B on A100 by default: 45–70 % of the peak, as people measure",
        ("validation/test_pricing.py::test_a_model_that_people_train_reaches_what_they_measure",),
    ),
    "18": ("a gradient that is zero by nature raises no alarm", ("runtime/test_rounding.py",)),
    "19": ("the backward pass of a reflection is split by samples, not replicated", ("sharding/test_resampling.py",)),
    "20": ("a recurrence written as a loop is one operator, and its plans train", ("tracing/test_scan.py",)),
    "21": (
        "odd calls end in an error of this package that names what to do; names are known in any case",
        ("test_public_functions.py", "tracing/test_errors.py", "cli/test_bad_input.py"),
    ),
    "22": (
        "verify_interpreted takes the model that it asks for",
        ("runtime/test_plain_module.py::test_a_model_of_ones_own_without_data_is_told_what_it_lacks",),
    ),
    "23": (
        "boolean indexing and torch.where with one argument are named",
        ("tracing/test_errors.py::test_a_tensor_sized_by_values_is_refused_by_the_name_of_what_makes_it",),
    ),
}
"""Number of what was wrong once -> what is right, and the tests of it, below tests/."""


def results(tests: tuple[str, ...]) -> tuple[int, list[str], float]:
    """How many tests passed, the names of the others, seconds."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        command = [sys.executable, "-m", "pytest", "-q", f"--junitxml={report}", *(f"tests/{test}" for test in tests)]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        found = list(ElementTree.parse(report).iter("testcase")) if report.exists() else []
    bad = [each.get("name", "") for each in found if any(part.tag != "properties" for part in each)]
    if done.returncode and not bad:
        bad = [done.stdout.strip().splitlines()[-1]]
    return len(found) - len(bad), bad, sum(float(each.get("time", 0)) for each in found)


def main() -> int:
    """Print a row for each case; 1 where one is wrong."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("numbers", nargs="*", metavar="NUMBER", help=f"of {', '.join(CASES)}; default: all")
    asked = parser.parse_args().numbers
    if unknown := sorted(set(asked) - set(CASES)):
        parser.error(f"no such case: {', '.join(unknown)}; choose from {', '.join(CASES)}")
    rows, wrong = [], 0
    for number in asked or CASES:
        right, tests = CASES[number]
        passed, bad, seconds = results(tests)
        wrong += bool(bad)
        row = {"case": number, "": "WRONG" if bad else "right", "what is right": right}
        rows.append(row | {"tests": "; ".join(bad) or str(passed), "s": f"{seconds:.1f}"})
        print(" | ".join(rows[-1].values()), file=sys.stderr, flush=True)
    print(render_table(rows))
    print(f"{len(rows)} cases, {wrong} wrong")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
