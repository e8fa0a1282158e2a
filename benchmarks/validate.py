"""Predict every measured run, and store the record that error bands and the Accuracy page are made from.

    python benchmarks/validate.py FOLDER                  the errors by source, against those that are stored
    python benchmarks/validate.py FOLDER --store          and store the record in alpa_explore/accuracy/data
    python benchmarks/validate.py FOLDER --unseen J       with --store: J is a JSON file, source -> mean error of its
                                                          times where figures are fitted to the other sources alone

FOLDER holds the files of measured runs with the columns of `alpa-explore predict`. vTrain's runs are taken from
tests/validation/data/vtrain unless FOLDER has files of those names. To be run again whenever costs or fitted figures
change.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from alpa_explore.accuracy.record import FILE, Record, Source, stored_record
from alpa_explore.cli.progress_line import ProgressLine
from alpa_explore.figures.accuracy.layout_choices import layout_choices_sentence
from alpa_explore.figures.accuracy.sources import sources_table
from alpa_explore.plans.report.text import render_table
from alpa_explore.validation.predict import predict_rows
from alpa_explore.validation.run_price import price_run
from alpa_explore.validation.runs.rows import read_rows
from benchmarks.figures_fit.record import record_of, record_to_bytes

ROOT = Path(__file__).parents[1]
VTRAIN = ROOT / "tests/validation/data/vtrain"
RECORD = ROOT / "alpa_explore/accuracy/data" / FILE
SHOWN = (
    "source",
    "runs",
    "refused",
    "with_times",
    "mean_error_fraction",
    "bias_fraction",
    "not_fitted_error_fraction",
    "with_enough_mfu",
    "their_error_fraction",
    "kendall_tau",
    "regret_fraction",
    "memory_error_fraction",
    "too_large_but_ran",
    "fits_but_failed",
)
FITTED = "half of the configurations, by the digest of their columns"
SOURCES = (
    Source(
        name="measured_single_node",
        label="vTrain, one node",
        origin="github.com/VIA-Research/vTrain",
        licence="MIT",
        fitted=FITTED,
    ),
    Source(
        name="measured_multi_node",
        label="vTrain, several nodes",
        origin="github.com/VIA-Research/vTrain",
        licence="MIT",
        fitted=FITTED,
    ),
    Source(
        name="nanotron_playbook_h100",
        label="nanotron",
        origin="Ultra-Scale Playbook (Hugging Face space nanotron/ultrascale-playbook)",
        licence="Apache-2.0",
        fitted=FITTED,
    ),
    Source(
        name="llm_foundry_mpt_a100_h100",
        label="llm-foundry",
        origin="github.com/mosaicml/llm-foundry @8c8dd48",
        licence="Apache-2.0",
        fitted=FITTED,
    ),
    Source(
        name="dgxc_nemo_h100_gb200",
        label="DGX Cloud",
        origin="github.com/NVIDIA/dgxc-benchmarking @35a9aec, @741c886, @8f5cbb3",
        licence="Apache-2.0, MIT",
        fitted=FITTED,
    ),
    Source(
        name="megatron_bridge_nemo",
        label="Megatron-Bridge",
        origin="github.com/NVIDIA-NeMo/Megatron-Bridge @067f987",
        licence="Apache-2.0",
        fitted=FITTED,
    ),
    Source(
        name="nemo_2407_h100",
        label="NeMo 24.07",
        origin="github.com/NVIDIA/NeMo @4c73f77, @3a8081f, @b39e679",
        licence="Apache-2.0",
        fitted=FITTED,
    ),
    Source(
        name="nemo_long_sequence",
        label="NeMo, long sequences",
        origin="github.com/NVIDIA/NeMo @19fadb6",
        licence="Apache-2.0",
        fitted=FITTED,
    ),
    Source(
        name="bigscience_bloom_a100",
        label="BigScience",
        origin="github.com/bigscience-workshop/bigscience @9e64ede",
        licence="Apache-2.0",
        fitted=FITTED,
    ),
    Source(
        name="megatron_lm_h100_a100",
        label="Megatron-LM",
        origin="github.com/NVIDIA/Megatron-LM @f2e5db4, @d98e8a6, and its table of April 2021",
        licence="BSD-3-Clause",
        fitted=FITTED,
    ),
    Source(
        name="schedules_and_amd_mi3xx",
        label="schedules, AMD",
        origin="github.com/AMD-AGI/Primus @fd1eeab, github.com/hpcaitech/ColossalAI @4f9953b",
        licence="MIT, Apache-2.0",
        fitted=FITTED,
    ),
    Source(
        name="mlperf_pretrain",
        label="MLPerf",
        origin="github.com/mlcommons/training_results_v3.0 to v5.1",
        licence="Apache-2.0",
        fitted=FITTED,
    ),
    Source(
        name="simumax_b200",
        label="SimuMax, B200",
        origin="github.com/MooreThreads/SimuMax @4dcaae5",
        licence="Apache-2.0",
        fitted=FITTED,
    ),
    Source(
        name="automodel_h100",
        label="NeMo Automodel",
        origin="github.com/NVIDIA-NeMo/Automodel @cb97654, @822effa",
        licence="Apache-2.0",
    ),
    Source(
        name="megatron_bridge_skills",
        label="Bridge, tuning notes",
        origin="github.com/NVIDIA-NeMo/Megatron-Bridge @067f987",
        licence="Apache-2.0",
    ),
    Source(
        name="qwen3_235b_layouts",
        label="Qwen3, five layouts",
        origin="github.com/yanring/Megatron-MoE-ModelZoo @e865051",
        licence="MIT",
    ),
    Source(
        name="litgpt_thunder",
        label="LitGPT, Thunder",
        origin="github.com/Lightning-AI/litgpt @2685705",
        licence="Apache-2.0",
    ),
)
"""The files whose runs are stored. Where no figure is fitted to the runs of a source, `fitted` is empty: then all of
them are held out. Errors of other files are shown alone: of runs whose layout is inferred (nemo_launcher, atorch), of
functional tests that the host limits (megatron_core_tests, verification cards), and figures of threads without a
licence say nothing of what to expect of a plan."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, metavar="FOLDER")
    parser.add_argument("--store", action="store_true")
    parser.add_argument("--unseen", type=Path, metavar="J")
    options = parser.parse_args()
    with ProgressLine(sys.stderr) as line:
        predictions = predict_rows(read_rows(files(options.folder)), pricer=price_run, progress=line)
    unseen = json.loads(options.unseen.read_text()) if options.unseen else {}
    sources = {s.name: replace(s, unseen_fraction=unseen.get(s.name)) for s in SOURCES}
    record = record_of(predictions, sources, made=f"commit {commit()}")
    for name, shown in (("stored", stored_record()), ("now", record)):
        show(name, shown)
    if options.store:
        record = replace(
            record,
            runs=tuple(run for run in record.runs if run.source in sources),
            sources=tuple(source for source in record.sources if source.name in sources),
        )
        RECORD.write_bytes(record_to_bytes(record))
        print(f"wrote {RECORD.relative_to(ROOT)}: {len(record.runs):,} runs")
    return 0


def files(folder: Path) -> list[Path]:
    """The files of runs; those of collectives have other columns."""
    found = [path for path in sorted(folder.glob("*.csv")) if "collective" not in path.name]
    names = {path.name for path in found}
    return [path for path in sorted(VTRAIN.glob("*.csv")) if path.name not in names] + found


def show(name: str, record: Record) -> None:
    rows = sources_table(record)
    print(
        f"{name} ({record.made or 'nothing yet'})\n\n{render_table(rows, SHOWN)}\n\n{layout_choices_sentence(record)}\n"
    )


def commit() -> str:
    """Of the sources, with '+' where the tree has changes."""
    asked = subprocess.run(
        ["git", "describe", "--always", "--dirty=+"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    return asked.stdout.strip() or "unknown"


if __name__ == "__main__":
    sys.exit(main())
