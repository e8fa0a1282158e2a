"""Runs become requests, in groups that share a graph; what cannot be priced is refused and stops no other."""

import csv
import math
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from alpa_explore.execution.progress import Progress
from alpa_explore.uniform_layouts.works import ModelKey
from alpa_explore.validation.predict import Predictions, predict_rows, request_of
from alpa_explore.validation.run_price import RunRequest, price_run
from alpa_explore.validation.runs.refusals import Kind
from alpa_explore.validation.runs.rows import Rows, read_rows
from tests.validation.stand_in import StandIn

DATA = Path(__file__).parent / "data"


@pytest.fixture(scope="module")
def rows() -> Rows:
    return read_rows(sorted(DATA.glob("*.csv")))


def asked(rows: Rows) -> dict[tuple[str, int], tuple[ModelKey, RunRequest]]:
    requests = [(row, request_of(row)) for row in rows.measured]
    return {(row.file, row.line): (request.key, request) for row, request in requests}


STRANGE = (
    *("", "0", "-1", "nan", "inf", "-inf", "1e300", "1e-320", "1e9", "1000003", "65536", "1.5", "0x10", "1_000"),
    *("１２", "None", "x", "\x00", "=1+1", "a" * 5000, "ETP=0", "interleaved-1f1b", "fp4", "full", "=HYPERLINK(1)"),
    "</script>",
)
TOGETHER = (
    *(("layers",), ("hidden", "heads", "kv_heads"), ("hidden",), ("seq",), ("vocab",), ("ffn",), ("vp", "layers")),
    *(("dp", "gpus", "global_batch"), ("global_batch", "micro_batch"), ("global_batch", "grad_accum")),
    *(("pp", "gpus", "layers"), ("tp", "gpus", "heads", "kv_heads", "hidden", "ffn"), ("experts",)),
)
"""Columns that agree with each other when all are multiplied."""


@pytest.fixture(scope="module")
def cells(rows: Rows) -> list[dict[str, str]]:
    """The cells of all rows that are predicted."""
    good = {(row.file, row.line) for row in rows.measured}
    found = []
    for path in sorted(DATA.glob("*.csv")):
        with path.open(newline="") as stream:
            found += [row for line, row in enumerate(csv.DictReader(stream), 2) if (path.stem, line) in good]
    return found


@given(st.data())
def test_a_row_that_was_changed_anywhere_is_predicted_or_refused(
    cells: list[dict[str, str]], data: st.DataObject
) -> None:
    """By a stranger, or a slip of the hand: whatever a row says stops nothing, takes no time and gives no nonsense."""
    row = dict(data.draw(st.sampled_from(cells)))
    if data.draw(st.booleans()):
        factor = data.draw(st.sampled_from((10**3, 10**6, 10**9, 10**11)))
        for name in data.draw(st.sampled_from(TOGETHER)):
            row[name] = str(int(float(row[name] or 1)) * factor)
    else:
        for name in data.draw(st.lists(st.sampled_from(sorted(row)), min_size=1, max_size=3)):
            row[name] = data.draw(st.sampled_from(STRANGE))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "runs.csv"
        with path.open("w", newline="", encoding="utf-8") as stream:
            writer = csv.DictWriter(stream, list(row))
            writer.writeheader()
            writer.writerow(row)
        found = predict_rows(read_rows([path]), pricer=StandIn(), processes=1)
    assert len(found.predicted) + len(found.refused) == 1
    assert all(refused.reason for refused in found.refused)
    assert all(0 < p.price.seconds < math.inf and 0 < p.price.bytes < math.inf for p in found.predicted)


@pytest.mark.parametrize(
    "large",
    [
        {"hidden": 2**20, "heads": 64, "kv_heads": 64, "ffn": 2**22, "vocab": 10**7},
        {"seq": 2**27, "heads": 8, "kv_heads": 8},
    ],
)
def test_the_largest_row_that_is_taken_is_priced(
    cells: list[dict[str, str]], large: dict[str, int], tmp_path: Path
) -> None:
    """Bounds of columns are those of what is built from them: torch counts bytes by 64 bits."""
    base = next(row for row in cells if row["framework"] == "nanotron")
    one = dict.fromkeys(("gpus", "tp", "pp", "dp", "vp", "cp", "ep", "global_batch", "micro_batch", "grad_accum"), 1)
    row = {**base, **one, **large}
    path = tmp_path / "runs.csv"
    path.write_text(",".join(row) + "\n" + ",".join(f'"{value}"' for value in row.values()) + "\n")
    (found,) = predict_rows(read_rows([path]), pricer=price_run, processes=1).predicted
    assert 0 < found.price.seconds < math.inf


def test_two_processes_give_what_one_gives_and_say_how_far_they_are(rows: Rows) -> None:
    said: list[Progress] = []
    there = predict_rows(rows, pricer=StandIn(), processes=2, progress=said.append)
    here = predict_rows(rows, pricer=StandIn(), processes=1)
    assert there == here
    assert (said[0].done, said[-1].done) == (0, len(rows.measured))
    assert all(p.total == len(rows.measured) for p in said)


def test_what_a_request_says(rows: Rows) -> None:
    requests = asked(rows)
    by_file: dict[str, list[tuple[ModelKey, RunRequest]]] = {}
    for (file, _), request in requests.items():
        by_file.setdefault(file, []).append(request)
    assert all(key.config.layers == 2 * key.period for key, _ in requests.values())
    assert all(sum(map(sum, run.parts)) > 2 + 2 for _, run in requests.values())
    assert all(len(run.parts) == run.layout.pipeline * run.layout.chunks for _, run in requests.values())
    of_bridge = by_file["megatron_bridge_nemo"]
    (four, _) = [run for key, run in of_bridge if run.cluster.device.name == "gb200" and not key.routed]
    assert (sum(map(sum, four.parts)), sum(four.parts[0])) == (126 + 2, sum(four.parts[1])), (
        "embedding counts as a block"
    )
    recipes = {run.cluster.software.low_precision for _, run in of_bridge}
    assert {"nvfp4", "mxfp8"} <= recipes
    assert {key.dtype for key, _ in requests.values()} == {"bfloat16", "float16"}
    assert all(run.recompute == ("full",) for _, run in by_file["bigscience_bloom_a100"])
    assert all(run.recompute == ("none", "full") for _, run in of_bridge)
    experts = [(key, run) for key, run in of_bridge if key.routed]
    assert {run.layout.expert for _, run in experts} >= {32, 64}
    assert all(key.config.experts.count % run.layout.expert == 0 for key, run in experts)
    assert {run.layout.zero_stage for _, run in by_file["llm_foundry_mpt_a100_h100"]} == {3}


def test_keys_are_replicated_and_words_padded_as_frameworks_do(tmp_path: Path) -> None:
    path = tmp_path / "runs.csv"
    header = "model,layers,hidden,heads,kv_heads,ffn,vocab,seq,global_batch,micro_batch,tp,pp,dp,gpu_type,framework"
    path.write_text(
        f"{header}\nllama,32,4096,32,4,14336,50257,4096,64,1,8,1,1,H100,nanotron\n"
        "llama,32,4096,32,4,14336,50257,4096,64,1,8,1,1,H100,NeMo\n"
    )
    (nanotron, _), (nemo, _) = asked(read_rows([path])).values()
    assert (nanotron.config.kv_heads, nanotron.config.vocabulary) == (8, 50264)
    assert nemo.config.vocabulary == 51200


def refusals(found: Predictions, kind: Kind) -> set[str]:
    return {row.reason for row in found.refused if row.kind is kind}


def test_what_the_cost_model_cannot_price_is_refused_with_its_reason(rows: Rows) -> None:
    found = predict_rows(rows, pricer=StandIn(refuses=2048, most_devices=200), processes=1)
    reasons = refusals(found, Kind.PRICING)
    assert "The stand-in refuses this model: 2048. Give another." in reasons
    assert any(reason.startswith("Too many devices") for reason in reasons)
    assert len(found.predicted) + len(found.refused) == len(rows.measured) + len(rows.refused)
    assert found.predicted


def test_unknown_names_are_refused_by_row_with_the_nearest(tmp_path: Path) -> None:
    header = (
        "model,layers,hidden,heads,ffn,vocab,seq,global_batch,micro_batch,tp,pp,dp,gpu_type,framework,precision,note"
    )
    run = "llama,32,4096,32,14336,32000,4096,64,1,1,1,8,{},{},{},"
    names = [("H100", "nemo", "bf16"), ("H900", "nemo", "bf16"), ("H100", "nanotorn", "bf16"), ("H100", "nemo", "bf17")]
    path = tmp_path / "runs.csv"
    path.write_text("\n".join([header, *(run.format(*each) for each in names)]) + "\n")
    found = predict_rows(read_rows([path]), pricer=StandIn(), processes=1)
    assert [p.row.line for p in found.predicted] == [2]
    assert [(r.line, r.kind) for r in found.refused] == [(3, Kind.MACHINE), (4, Kind.MACHINE), (5, Kind.MACHINE)]
    for refused, nearest in zip(found.refused, ("h100", "nanotron", "bf16"), strict=True):
        assert f"'{nearest}'" in refused.reason


def test_a_layout_that_leaves_a_rank_of_nanotron_without_work_does_not_run(tmp_path: Path) -> None:
    path = tmp_path / "runs.csv"
    path.write_text(
        "model,layers,hidden,heads,ffn,vocab,tied,seq,global_batch,micro_batch,tp,pp,dp,gpu_type,framework\n"
        "llama-like,16,2048,32,8192,131072,1,4096,256,1,1,16,1,H100,nanotron\n"
        "llama-like,16,2048,32,8192,131072,1,4096,256,1,1,8,2,H100,nanotron\n"
    )
    idle, whole = predict_rows(read_rows([path]), pricer=StandIn(), processes=1).predicted
    assert not idle.price.fits
    assert "1 of 16 stages get no part of the model" in idle.price.reason
    assert whole.price.fits
