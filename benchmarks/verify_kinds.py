"""Every kind of parallelism against one process: planned by the command line, trained by gloo, a process a device.

    PYTHONPATH=. python benchmarks/verify_kinds.py [--only ring mixtral] [--store]

Each case is what a user types: `alpa-explore plan MODEL … -o FILE`, then `alpa-explore verify FILE`. Two steps in
float32; a case passes where loss, every gradient and every updated weight differ by 1e-5 at most (relative, as in
`alpa_explore/runtime/reference/one_process.py`) and the plan says the kind of parallelism that was asked for. `--store`
writes `verify_kinds.json`, the table that was last measured.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from alpa_explore.cli import main as alpa_explore
from alpa_explore.plans.report.text import render_table

STORE = Path(__file__).parent / "verify_kinds.json"
TOLERANCE = 1e-5


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A plan, and what it must say of itself."""

    model: str
    how: str
    """Arguments of `alpa-explore plan`."""
    says: str
    """Part of the plan's lines of parallelism, its schedule, what its stages recompute, or their devices."""
    processes: int = 4
    cluster: str = ""
    """By default the processes are CPUs of one node."""
    samples: int = 4
    """Of a microbatch."""
    microbatches: int = 2


def by_hand(model: str, degrees: str, says: str, **more: Any) -> Case:
    """A baseline of these degrees."""
    kind = "" if degrees.startswith(("zero", "hsdp", "fsdp")) else "megatron "
    return Case(model=model, how=f"--baseline {kind}{degrees}", says=says, **more)


RING, ZIGZAG = "context parallel (ring)", "context parallel (ring, zig-zag)"
EXPERT = "expert parallel"
MIXTURES = ("mixtral-tiny", "qwen3-moe-tiny", "deepseek-tiny")

CASES = (
    by_hand("llama-tiny", "cp=4 dp=1 exchange=ring", RING, samples=1),
    by_hand("llama-tiny", "cp=4 dp=1 exchange=ring-zigzag", ZIGZAG, samples=1),
    by_hand("llama-tiny", "cp=4 dp=1 exchange=all-gather", "context parallel (all-gather", samples=1),
    by_hand("llama-tiny", "cp=4 dp=1 exchange=ulysses", "context parallel (Ulysses)", samples=1),
    by_hand("llama-tiny", "cp=2 dp=2 exchange=ring", RING, samples=2),
    by_hand("llama-tiny", "cp=2 dp=2 pp=1 exchange=ulysses", "context parallel (Ulysses)", samples=2),
    by_hand("llama-tiny", "tp=2 cp=2 exchange=ring-zigzag", ZIGZAG, samples=1),
    by_hand("llama-tiny", "tp=2 cp=2 dp=2 exchange=ring", RING, samples=2, processes=8),
    by_hand("llama-tiny", "cp=2 pp=2 exchange=ring", RING, samples=1),
    by_hand("deepseek-tiny", "cp=2 dp=2 ep=2 exchange=ring", RING, samples=2),
    by_hand("qwen3-moe-tiny", "cp=2 dp=2 ep=2 exchange=ulysses", "context parallel (Ulysses)", samples=2),
    *(by_hand(model, "dp=4 ep=4", EXPERT) for model in MIXTURES),
    *(by_hand(model, "dp=4 ep=2", EXPERT) for model in MIXTURES),
    *(by_hand(model, "tp=2 dp=2 ep=2", EXPERT, samples=2) for model in MIXTURES),
    by_hand("mixtral-tiny", "tp=2 dp=4 ep=2", EXPERT, processes=8),
    by_hand("mixtral-tiny", "dp=2 ep=2 pp=2", EXPERT),
    by_hand("mixtral-tiny", "fsdp+tp+pp dp=4 ep=2", EXPERT),
    by_hand("gpt-oss-tiny", "dp=4 ep=2", EXPERT),
    by_hand("gpt-oss-tiny", "tp=2 dp=2 ep=2", EXPERT, samples=2),
    *(
        Case(model="llama-tiny", how=f"--schedule {name} --stages 2", says=name, microbatches=4)
        for name in ("zb-v", "v-half", "v-min", "dualpipe-v")
    ),
    Case(model="llama-tiny", how="--schedule dualpipe --stages 4", says="dualpipe", microbatches=8),
    Case(model="mixtral-tiny", how="--schedule zb-v --stages 2", says="zb-v", microbatches=4),
    by_hand("llama-tiny", "zero-1", "data parallel (ZeRO-1)"),
    by_hand("llama-tiny", "zero-2", "data parallel (ZeRO-2)"),
    by_hand("llama-tiny", "zero-3", "FSDP (ZeRO-3)"),
    by_hand("llama-tiny", "hsdp replicas=2", "FSDP (ZeRO-3) over axis 1"),
    *(
        Case(model=model, how=f"--remat {name} --stages 2", says=name)
        for model, name in (
            ("llama-tiny", "norms"),
            ("llama-tiny", "attention"),
            ("llama-tiny", "mlp"),
            ("llama-tiny", "norms+attention"),
            ("llama-tiny", "half"),
            ("gpt-tiny", "full"),
            ("mixtral-tiny", "norms+attention"),
        )
    ),
    by_hand("llama-tiny", "tp=2 dp=2 --remat norms+attention", "norms+attention"),
    Case(model="llama-tiny", how="--remat attention --schedule zb-v --stages 2", says="attention", microbatches=4),
    Case(model="llama-tiny", how="", says="a100", cluster="1x2:a100+1x2:v100"),
    Case(model="gpt-tiny", how="--schedule zb-h1", says="a100", cluster="1x4:a100+1x4:v100", processes=8),
)


def name_of(case: Case) -> str:
    """What `--only` looks for."""
    return f"{case.model} {case.how}"


def verified(case: Case, folder: Path) -> dict[str, Any]:
    """The row of a case: it is planned, written, read again, launched and compared."""
    file = str(folder / "a.plan.json")
    batch = str(case.samples * case.microbatches)
    size = [
        "--cluster",
        case.cluster or f"1x{case.processes}:cpu",
        "-B",
        str(case.microbatches),
        "--global-batch",
        batch,
    ]
    row: dict[str, Any] = {"model": case.model, "asked": case.how.removeprefix("--"), "processes": case.processes}
    start = time.perf_counter()
    code, told = _run(["plan", case.model, *size, "--precision", "fp32", *case.how.split(), "-o", file, "--json"])
    if code == 0:
        code, told = _run(["verify", file, "--device", "cpu", "--json"])
    seconds = round(time.perf_counter() - start, 1)
    if not told.startswith("{"):
        return row | {"plan": "", "relative_error": None, "seconds": seconds, "failed": told}
    found = json.loads(told)
    plan = "; ".join(found["parallelism"])
    schedule = found["schedule"]
    error = found["worst"]["relative_error"]
    stages = json.loads(Path(file).read_text(encoding="utf-8"))["stages"]
    notes = {stage.get(name) for stage in stages for name in ("recomputation", "device")} - {None, ""}
    notes |= {schedule} - {"1f1b"}
    row |= {"plan": "; ".join((plan, *sorted(notes))), "relative_error": error, "seconds": seconds}
    if case.says not in row["plan"]:
        return row | {"failed": f"the plan does not say {case.says}"}
    return row if code == 0 and error <= TOLERANCE else row | {"failed": f"over {TOLERANCE:g}"}


def _run(words: list[str]) -> tuple[int, str]:
    """(exit code, what the command printed; its error where it failed)."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = alpa_explore(words)
    return code, out.getvalue() or err.getvalue().strip().splitlines()[-1]


def main() -> int:
    """Print a row for each case; 1 where one fails."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", metavar="TEXT", help="cases whose model or options hold one of these")
    parser.add_argument("--store", action="store_true", help=f"write {STORE.name}")
    options = parser.parse_args()
    chosen = [c for c in CASES if options.only is None or any(text in name_of(c) for text in options.only)]
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for case in chosen:
            rows.append(verified(case, Path(folder)))
            print(f"{name_of(case)}: {rows[-1].get('failed', rows[-1]['relative_error'])}", file=sys.stderr, flush=True)
    shown = [row | {"relative_error": f"{row['relative_error']:.1e}" if row["relative_error"] else "–"} for row in rows]
    print(render_table([{name: row.get(name, "") for name in (*rows[0], "failed")} for row in shown]))
    failed = sum("failed" in row for row in rows)
    print(f"\n{len(rows) - failed} of {len(rows)} are within {TOLERANCE:g} of one process and say what was asked for.")
    if options.store:
        STORE.write_text(json.dumps(rows, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
