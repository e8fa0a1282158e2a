"""Files of measured runs: what a row says, what is derived, and what is refused with its line."""

import re
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from alpa_explore.errors import OptionError
from alpa_explore.validation.runs.machines import precision_of
from alpa_explore.validation.runs.refusals import Kind
from alpa_explore.validation.runs.rows import MeasuredRow, RefusedRow, read_rows

DATA = Path(__file__).parents[1] / "data"
VTRAIN = DATA / "vtrain"
HEADER = (
    "model,layers,hidden,heads,kv_heads,ffn,vocab,tied,experts,topk,seq,global_batch,micro_batch,grad_accum,gpus,gpu_type,"
    "gpus_per_node,tp,pp,vp,dp,cp,ep,zero_stage,recompute,precision,schedule,tokens_s_gpu,tflops_gpu,memory_gib,step_s,"
    "status,framework,source,note"
)
ROW = {
    **{"model": "LLAMA3-8B", "layers": "32", "hidden": "4096", "heads": "32", "kv_heads": "8", "ffn": "14336"},
    **{"vocab": "128256", "tied": "0", "seq": "8192", "global_batch": "128", "micro_batch": "1", "grad_accum": "32"},
    **{"gpus": "8", "gpu_type": "H100-80GB", "gpus_per_node": "8", "tp": "1", "pp": "2", "vp": "1", "dp": "4"},
    **{"cp": "1", "zero_stage": "1", "recompute": "none", "precision": "bf16", "schedule": "1f1b", "step_s": "12.5"},
    **{"memory_gib": "61", "status": "ok", "framework": "NeMo", "source": "a page"},
}


def read(folder: Path, *rows: dict[str, str]) -> list[MeasuredRow | RefusedRow]:
    path = folder / "runs.csv"
    lines = [",".join({**ROW, **row}.get(name, "") for name in HEADER.split(",")) for row in rows]
    path.write_text("\n".join([HEADER, *lines]) + "\n")
    found = read_rows([path])
    return sorted((*found.measured, *found.refused), key=lambda row: row.line)


def test_files_of_one_name_in_two_folders_are_two_sources(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        read(tmp_path / name, {})
    rows = read_rows([tmp_path / "a" / "runs.csv", tmp_path / "b" / "runs.csv"]).measured
    assert [row.file for row in rows] == [str(tmp_path / "a" / "runs"), str(tmp_path / "b" / "runs")]


def only(folder: Path, **changes: str) -> MeasuredRow:
    (row,) = read(folder, changes)
    assert isinstance(row, MeasuredRow), row
    return row


def test_a_complete_row_is_what_its_cells_say(tmp_path: Path) -> None:
    row = only(tmp_path)
    assert (row.file, row.line, row.measured_seconds) == ("runs", 2, 12.5)
    assert row.measured_bytes == 61 * 2**30
    at = row.layout
    assert (at.tensor, at.pipeline, at.data, at.microbatches) == (1, 2, 4, 32)
    assert row.architecture.kind == "llama"
    assert row.architecture.config(8192).parameter_count == 8_030_261_248
    assert row.scored


def test_seconds_follow_from_tokens_a_second_and_else_from_flops(tmp_path: Path) -> None:
    tokens = 128 * 8192
    by_tokens = only(tmp_path, step_s="", tokens_s_gpu=f"{tokens / 8 / 12.5}", tflops_gpu="1")
    assert by_tokens.measured_seconds == pytest.approx(12.5)
    by_flops = only(tmp_path, step_s="", tflops_gpu="400")
    # 6 × 7.5 B weights of products, and 12 × hidden × sequence a layer for attention.
    flops = 6 * tokens * (7_504_658_432 + 32 * 2 * 4096 * 8192)
    assert by_flops.measured_seconds == pytest.approx(flops / (8 * 400e12), rel=1e-3)
    assert only(tmp_path, step_s="", status="oom").measured_seconds is None


def test_what_a_source_leaves_out_is_derived_or_taken_as_frameworks_take_it(tmp_path: Path) -> None:
    assert only(tmp_path, dp="").layout.data == 4
    assert only(tmp_path, gpus="").devices == 8
    assert only(tmp_path, micro_batch="").layout.microbatch == 1
    assert only(tmp_path, grad_accum="").layout.microbatches == 32
    assert only(tmp_path, global_batch="").global_batch == 128
    row = only(tmp_path, kv_heads="", vp="", precision="", recompute="", gpus_per_node="", zero_stage="", cp="")
    assert (row.architecture.kv_heads, row.layout.chunks, row.precision) == (32, 1, "bf16")
    assert (row.recompute, row.devices_per_node, row.zero_stage) == ("not stated", 8, None)
    assert only(tmp_path, model="GPT3-5B", ffn="").architecture.ffn == 4 * 4096


@pytest.mark.parametrize(
    ("changes", "kind", "words"),
    [
        ({"experts": "8"}, Kind.MISSING, "topk is not given"),
        ({"ep": "8"}, Kind.CONTRADICTION, "ep is 8 without experts"),
        ({"experts": "8", "topk": "2", "ep": "3"}, Kind.IMPOSSIBLE, "ep 3 does not divide 8 experts"),
        (
            {"experts": "8", "topk": "2", "ep": "8"},
            Kind.IMPOSSIBLE,
            "ep 8 does not divide the tp × cp × dp = 4 devices",
        ),
        ({"experts": "8", "topk": "9"}, Kind.CONTRADICTION, "topk is 9, but there are 8 experts"),
        ({"cp": "2"}, Kind.CONTRADICTION, "tp × cp × pp × dp = 1 × 2 × 2 × 4 = 16, but gpus is 8"),
        ({"cp": "3", "gpus": "24"}, Kind.IMPOSSIBLE, "cp 3 does not divide seq 8192"),
        ({"note": "container 26.06; LoRA Performance"}, Kind.FROZEN, "LoRA: with frozen weights"),
        ({"layers": ""}, Kind.MISSING, "layers is not given"),
        ({"hidden": "", "seq": ""}, Kind.MISSING, "hidden and seq are not given"),
        ({"micro_batch": "", "grad_accum": "", "seq": "2048"}, Kind.MISSING, "micro_batch not given"),
        ({"ffn": ""}, Kind.MISSING, "ffn not given"),
        ({"framework": ""}, Kind.MISSING, "framework is not given"),
        ({"vp": "", "schedule": "interleaved-1f1b"}, Kind.MISSING, "vp is not given"),
        ({"dp": "8"}, Kind.CONTRADICTION, "1 × 2 × 8 = 16, but gpus is 8"),
        ({"global_batch": "126", "grad_accum": ""}, Kind.CONTRADICTION, "126 is not a multiple"),
        ({"grad_accum": "16"}, Kind.CONTRADICTION, "grad_accum is 16.* is 32"),
        ({"heads": "30"}, Kind.IMPOSSIBLE, "heads 30 does not divide hidden 4096"),
        ({"tp": "3", "gpus": "24"}, Kind.IMPOSSIBLE, "tp 3 does not divide heads 32"),
        ({"vp": "2", "pp": "1", "dp": "8", "grad_accum": "16"}, Kind.IMPOSSIBLE, "without a pipeline"),
        ({"pp": "64", "gpus": "256"}, Kind.IMPOSSIBLE, "32 layers for pp × vp = 64 × 1"),
        ({"hidden": "x"}, Kind.CELL, "hidden is 'x', not a whole number"),
        ({"step_s": "soon"}, Kind.CELL, "step_s is 'soon', not a number above 0"),
        ({"tp": "0"}, Kind.CELL, "tp is '0', not a whole number from 1 to"),
        ({"layers": "1e9"}, Kind.CELL, "layers is '1e9', not a whole number from 1 to 2,000"),
        ({"zero_stage": "4"}, Kind.CELL, "zero_stage is '4', not a whole number from 0 to 3"),
        ({"note": "ETP=0"}, Kind.CELL, "ETP is 0, not a whole number from 1"),
        ({"note": f"ETP={10**40}"}, Kind.CELL, r"ETP is 1e\+40"),
        (
            {"seq": str(2**27), "micro_batch": "1000000", "global_batch": "128000000"},
            Kind.IMPOSSIBLE,
            "has a tensor of",
        ),
        (
            {"pp": "2000", "vp": "2000", "gpus": "8000", "framework": "nanotron"},
            Kind.IMPOSSIBLE,
            "4000000 parts of the pipeline",
        ),
        (
            {"pp": "2000", "vp": "2", "gpus": "8000", "framework": "nanotron"},
            Kind.IMPOSSIBLE,
            "4000 parts of the pipeline",
        ),
        ({"pp": "2000", "gpus": "8000", "framework": "nanotron"}, Kind.IMPOSSIBLE, "2000 parts of the pipeline"),
    ],
)
def test_a_refused_row_has_its_line_and_reason_and_stops_no_other(
    changes: dict[str, str], kind: Kind, words: str, tmp_path: Path
) -> None:
    before, refused, after = read(tmp_path, {}, changes, {})
    assert isinstance(before, MeasuredRow)
    assert isinstance(after, MeasuredRow)
    assert isinstance(refused, RefusedRow)
    assert (refused.line, refused.kind) == (3, kind)
    assert re.search(words, refused.reason), refused.reason


def test_what_frameworks_run_is_priced(tmp_path: Path) -> None:
    only(tmp_path, layers="33")  # stages of unequal numbers of blocks
    only(tmp_path, kv_heads="8", tp="16", dp="4", gpus="128")  # keys of a head on two devices
    only(tmp_path, vocab="50257", tp="2", dp="2", gpus="8", grad_accum="64")  # padded
    only(tmp_path, pp="32", gpus="128", framework="nanotron", layers="30")  # stages without blocks


def test_experts_and_context_parallelism_are_read(tmp_path: Path) -> None:
    """The columns give the routed experts; what they leave open is known by name, here of DeepSeek-V3."""
    sizes = {"layers": "61", "hidden": "7168", "heads": "128", "kv_heads": "128", "ffn": "2048", "vocab": "129280"}
    sizes |= {"experts": "256", "topk": "8", "gpus": "32", "dp": "4", "pp": "1", "grad_accum": "32"}
    row = only(tmp_path, model="DeepSeekV3", cp="8", ep="16", **sizes)
    assert (row.layout.context, row.layout.expert, row.layout.expert_tensor) == (8, 16, 1)
    decoder = row.architecture.decoder
    # 671 B parameters, 37 B of them active (DeepSeek-V3, arXiv 2412.19437), with embedding and head, and with three
    # blocks of experts more than it has.
    ends = 2 * 7168 * 129280
    assert decoder.parameter_count == pytest.approx(671e9 + 3 * 11.1e9, rel=0.01)
    assert 61 * decoder.active_products + ends == pytest.approx(37e9, rel=0.03)
    assert only(tmp_path, model="DeepSeekV3", note="ETP=2", ep="2", **{**sizes, "gpus": "4"}).layout.expert_tensor == 2


def test_vtrains_columns_are_read_with_what_its_runs_share() -> None:
    rows = read_rows([VTRAIN / "measured_multi_node.csv", VTRAIN / "measured_single_node.csv"])
    assert (len(rows.measured), len(rows.refused)) == (388, 0)
    row = rows.measured[0]
    assert (row.architecture.kind, row.architecture.vocabulary, row.architecture.tied) == ("gpt", 50257, True)
    assert (row.recompute, row.zero_stage, row.framework) == ("full", 0, "Megatron-DeepSpeed (vTrain)")
    assert row.measured_seconds == pytest.approx(3.5665)
    assert (row.line, row.file, row.gpu_type) == (2, "measured_multi_node", "A100-80GB")


def test_slices_of_all_sources_are_read_row_by_row() -> None:
    rows = read_rows(sorted(DATA.glob("*.csv")))
    counts = Counter(row.file for row in rows.measured)
    assert set(counts) == {
        *("nanotron_playbook_h100", "megatron_bridge_nemo", "bigscience_bloom_a100", "llm_foundry_mpt_a100_h100"),
        *("dgxc_nemo_h100_gb200", "megatron_lm_h100_a100"),
    }
    reasons = {(row.file, row.kind) for row in rows.refused}
    assert ("nemo_long_sequence", Kind.CONTRADICTION) in reasons
    assert any(row.architecture.experts > 1 for row in rows.measured if row.file == "megatron_bridge_nemo")
    assert ("megatron_bridge_nemo", Kind.MISSING) in reasons
    assert ("bigscience_bloom_a100", Kind.CONTRADICTION) in reasons
    assert ("megatron_lm_h100_a100", Kind.MISSING) in reasons
    faulty = [row for row in rows.measured if row.faulty]
    assert len(faulty) >= 3
    assert not any(row.scored for row in faulty)
    mpt = next(row for row in rows.measured if row.model == "mpt-30b")
    assert mpt.architecture.config(mpt.sequence).parameter_count == 29_975_214_080


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a,b\n1,2\n", "lacks columns"),
        ("", "lacks columns"),
        (HEADER + "\n", "is empty"),
        (HEADER + ",layers\n", "names a column twice: 'layers'"),
        (HEADER + '\n"' + "x" * 200_000, "not valid CSV"),
    ],
)
def test_a_file_that_is_no_table_of_runs_is_an_error(text: str, words: str, tmp_path: Path) -> None:
    path = tmp_path / "runs.csv"
    path.write_text(text)
    with pytest.raises(OptionError, match=words):
        read_rows([path])


def test_columns_that_are_not_known_are_ignored_with_a_word(tmp_path: Path) -> None:
    """A column that is mistyped leaves its figure at what frameworks do by default."""
    path = tmp_path / "runs.csv"
    line = ",".join(ROW.get(name, "") for name in HEADER.split(","))
    path.write_text(f"{HEADER},recomputation\n{line},full\n")
    rows = read_rows([path])
    assert len(rows.measured) == 1
    assert rows.ignored == (f"{path}: columns that are not known here, and ignored: 'recomputation'",)
    assert not read_rows([*sorted(DATA.glob("*.csv")), *sorted(VTRAIN.glob("*.csv"))]).ignored


def test_lines_are_those_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "runs.csv"
    line = ",".join(ROW.get(name, "") for name in HEADER.split(","))
    path.write_bytes("\r\n".join([HEADER, "", f'{line[:-1]},"two\r\nlines"', "", line, line + ",7"]).encode())
    rows = read_rows([path])
    assert [row.line for row in rows.measured] == [3, 6]
    assert [(row.line, row.kind) for row in rows.refused] == [(7, Kind.CELL)]


def test_a_run_whose_precision_is_not_known_is_priced_and_not_scored() -> None:
    row = next(row for row in read_rows([DATA / "nanotron_playbook_h100.csv"]).measured if row.scored)
    assert not replace(row, precision="not stated").scored
    assert precision_of("not stated") == replace(precision_of("bf16"), note="precision 'not stated' is priced as bf16")


def test_mlperfs_default_number_of_parts_is_taken_where_the_file_of_a_run_leaves_it_out(tmp_path: Path) -> None:
    of = {"source": "mlcommons/training_results_v3.1 NVIDIA/results/eos/gpt3 @d06288b", "layers": "96", "pp": "8"}
    gpt = {**of, "gpus": "64", "tp": "1", "dp": "8", "grad_accum": "16", "global_batch": "128"}
    row = only(tmp_path, **gpt)
    assert (row.layout.chunks, row.schedule) == (12, "interleaved-1f1b")
    for other in ({"vp": "6"}, {"source": "a page"}, {"layers": "40"}, {"grad_accum": "4", "global_batch": "32"}):
        assert only(tmp_path, **{**gpt, **other}).layout.chunks == int(other.get("vp", "1"))
