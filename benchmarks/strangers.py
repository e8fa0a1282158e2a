"""What strangers' modules, configs and words found wrong once, each with its right value today.

    python benchmarks/strangers.py [NUMBER …] [--quick]

One row a case: its number, what is asked, what is right, what was found, seconds. Exits with 1 where one is wrong. What
is right is known without this package: plain PyTorch, an operator's FLOPs by hand, bytes of tensors, a published
measurement. `--quick` leaves out those that take more than about 20 s.

It has more than 500 lines because it is a list of cases.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import itertools
import json
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save
from torch.utils.checkpoint import checkpoint

import alpa_explore as ax
from alpa_explore.cli import main as command
from alpa_explore.errors import AlpaExploreError
from alpa_explore.plans.report.floors import broken_floors
from alpa_explore.plans.report.text import render_table

Found = tuple[bool, str]
"""Whether it is right, and what was found in words."""


@dataclass(frozen=True, kw_only=True)
class Case:
    """Something that was wrong once."""

    number: str
    right: str
    slow: bool
    run: Callable[[], Found]


CASES: list[Case] = []


def case(number: str, right: str, *, slow: bool = False) -> Callable[[Callable[[], Found]], Callable[[], Found]]:
    """Decorator: a case, by the number of what it once was."""

    def add(run: Callable[[], Found]) -> Callable[[], Found]:
        CASES.append(Case(number=number, right=right, slow=slow, run=run))
        return run

    return add


def said(*words: str) -> tuple[int, str, str]:
    """Exit code, standard output and standard error of the command line."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code = command(list(words))
        except SystemExit as ended:
            code = int(ended.code or 0)
    return code, out.getvalue(), err.getvalue()


@contextlib.contextmanager
def file_of(body: dict[str, Any], name: str = "config.json") -> Iterator[str]:
    """A file with this JSON."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / name
        path.write_text(json.dumps(body), encoding="utf-8")
        yield str(path)


def small(model: nn.Module, inputs: tuple[Any, ...], cluster: str = "1x2:cpu", **options: Any) -> ax.Plan:
    """A plan of one layer."""
    asked = {"num_microbatches": 2, "num_layers": 1, "scheduler": "serial"} | options
    return ax.plan(ax.capture(model, inputs), cluster, **asked)


def equal_to_torch(model: nn.Module, data: Callable[[int], tuple[Any, ...]], **options: Any) -> Found:
    """Loss, gradients, weights and buffers of two steps beside those of the module in plain PyTorch."""
    plan = small(model, data(0), **options)
    found = ax.verify_interpreted(plan, model=model, data=data)
    worst = max(difference.relative_error for difference in found.differences)
    compared = {difference.what for difference in found.differences}
    right = found.passed and {"module loss", "module gradient", "module weight"} <= compared
    return right, f"{'equal' if right else 'DIFFERS'}, worst {worst:.1e}"


def noise(*shape: int, dtype: torch.dtype = torch.float32) -> Callable[[int], tuple[torch.Tensor]]:
    """Random inputs of a microbatch, by its number."""
    return lambda number: (torch.randn(*shape, dtype=dtype, generator=torch.Generator().manual_seed(number)),)


class Called(nn.Module):
    """A module of its parts and a function of it and its input."""

    def __init__(self, call: Callable[..., torch.Tensor], **parts: Any) -> None:
        super().__init__()
        for name, part in parts.items():
            if isinstance(part, torch.Tensor) and not isinstance(part, nn.Parameter):
                self.register_buffer(name, part)
            else:
                setattr(self, name, part)
        self.call = call

    def forward(self, *inputs: torch.Tensor) -> torch.Tensor:
        return self.call(self, *inputs)


def linears(count: int, width: int, **options: Any) -> nn.ModuleList:
    """Square matrices."""
    return nn.ModuleList(nn.Linear(width, width, bias=False, **options) for _ in range(count))


@case("1", "160 frozen blocks of 8192², 21.5 GB in bfloat16, do not fit a V100 of 16 GB", slow=True)
def frozen_weights() -> Found:
    meta = {"device": "meta", "dtype": torch.bfloat16}
    frozen = linears(160, 8192, **meta).requires_grad_(False)
    down = nn.ModuleList(nn.Linear(8192, 16, bias=False, **meta) for _ in range(160))
    up = nn.ModuleList(nn.Linear(16, 8192, bias=False, **meta) for _ in range(160))

    def call(self: Any, x: torch.Tensor) -> torch.Tensor:
        for f, d, u in zip(self.frozen, self.down, self.up, strict=True):
            x = torch.relu(f(x) + u(d(x)))
        return x.float().mean()

    model = Called(call, frozen=frozen, down=down, up=up)
    try:
        plan = small(model, (torch.empty(4, 8192, **meta),), "1x1:v100")
    except AlpaExploreError as error:
        return "GiB" in str(error), str(error)[:90]
    return False, f"fits, {plan.predicted.peak_bytes_per_device / 1e9:.2f} GB"


@case("1b", "a buffer of 256 MB takes 256 MB")
def buffer_bytes() -> Found:
    model = Called(
        lambda self, x: (self.layer(x) + self.table.sum()).mean(), layer=nn.Linear(8, 8), table=torch.zeros(64 * 10**6)
    )
    peak = small(model, (torch.empty(4, 8),), "1x1:v100").predicted.peak_bytes_per_device
    return peak >= 0.256e9, f"{peak / 1e9:.3f} GB"


@case("2", "complex weights train as in PyTorch, imaginary part and all")
def complex_weights() -> Found:
    weight = nn.Parameter(torch.randn(8, 8, dtype=torch.complex64, generator=torch.Generator().manual_seed(0)))
    model = Called(lambda self, x: (x.to(torch.complex64) @ self.weight).abs().square().mean(), weight=weight)
    data = noise(4, 8)
    equal, words = equal_to_torch(model, data)
    with tempfile.TemporaryDirectory() as folder:
        asked = {"steps": 1, "model": model, "data": data, "device": "cpu", "folder": f"{folder}/run"}
        ax.launch(small(model, data(0)), save=f"{folder}/saved", **asked).result()
        dcp_to_torch_save(f"{folder}/saved", f"{folder}/saved.pt")
        (trained,) = torch.load(f"{folder}/saved.pt").values()
    changed = float((trained - weight).imag.abs().max())
    # A step of Adam changes each part by the learning rate at most.
    return equal and 0 < changed < 0.1, f"{words}; a step changes the imaginary part by {changed:.1e}"


@case("2b", "a product of complex matrices has four times the FLOPs of a real one")
def complex_flops() -> Found:
    flops = []
    for dtype in (torch.float32, torch.complex64):
        model = Called(lambda self, x: (x @ self.weight).abs().mean(), weight=nn.Parameter(torch.randn(8, 8).to(dtype)))
        graph = ax.capture(model, (torch.empty(4, 8, dtype=dtype),))
        flops.append(sum(o.flops for o in graph.forward_operators if "mm" in o.kind))
    return flops[1] == 4 * flops[0], f"{flops[1]} / {flops[0]}"


@case("3", "no plan is below a floor of physics: FLOPs, bytes, the busiest link, what is hidden", slow=True)
def floors() -> Found:
    options = {"global_batch": 128, "num_microbatches": 4, "rematerialization": "auto"}
    broken = broken_floors(ax.plan("mixtral-tiny", "4x8:h100", **options))
    return not broken, "; ".join(broken) or "none is broken"


@case("4", "a plan whose bytes are sharded as ZeRO-3 is called ZeRO-3, and its export says so")
def names_by_bytes() -> Found:
    plan = ax.baseline("llama-tiny", "1x4:h100", "zero-3", num_microbatches=4, num_layers=2)
    lines = ax.export(plan, "megatron").text.splitlines()
    strategy = next((line.strip() for line in lines if "sharding-strategy" in line), "no strategy")
    return "optim_grads_params" in strategy, strategy[:80]


class Hooked(nn.Module):
    """Twelve equal blocks, of which late ones differ only in what autograd records."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.blocks, self.how = nn.ModuleList(nn.Linear(16, 16) for _ in range(12)), how

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for k, block in enumerate(self.blocks):
            off = {"grad off": k >= 9, "odd off": k % 2 == 1 and k > 8}.get(self.how, False)
            with torch.set_grad_enabled(not off):
                y = torch.tanh(block(x))
            if self.how == "hook" and k >= 8:
                y.register_hook(lambda g: 0.5 * g)
            if self.how == "function" and k >= 8:
                y = Half.apply(y)
            x = x + y
        return x.square().mean()


class Half(torch.autograd.Function):
    """The identity with half of its gradient."""

    @staticmethod
    def forward(_ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x.clone()

    @staticmethod
    def backward(_ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        return 0.5 * gradient


@case("5", "equal blocks that differ only in the backward pass have the gradients of PyTorch, or are refused")
def hidden_differences() -> Found:
    words, right = [], True
    for how in ("grad off", "odd off", "hook", "function"):
        try:
            good, found = equal_to_torch(Hooked(how), noise(4, 16))
        except AlpaExploreError as error:
            good, found = True, f"refused ({type(error).__name__})"
        right &= good
        words.append(f"{how}: {found}")
    return right, "; ".join(words)


@case("6", "autocast of a GPU is traced without one: products in bfloat16")
def autocast() -> Found:
    def call(self: Any, x: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cuda", torch.bfloat16):
            return self.layer(x).float().square().mean()

    graph = ax.capture(Called(call, layer=nn.Linear(16, 16)), (torch.empty(4, 16),))
    dtypes = {graph.tensors[o.outputs[0]].dtype for o in graph.forward_operators if "mm" in o.kind}
    return dtypes == {"bfloat16"}, ", ".join(sorted(map(str, dtypes)))


@case("7", "torch's checkpoint is recomputed: more time, less memory")
def checkpointed() -> Found:
    def call(self: Any, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False) if self.on else block(x)
        return x.square().mean()

    plans = []
    for on in (False, True):
        blocks = nn.ModuleList(nn.Sequential(nn.Linear(512, 2048), nn.GELU(), nn.Linear(2048, 512)) for _ in range(4))
        plans.append(small(Called(call, blocks=blocks, on=on), (torch.empty(4096, 512),), "1x1:v100"))
    seconds = [p.predicted.iteration_seconds for p in plans]
    peaks = [p.predicted.peak_bytes_per_device for p in plans]
    right = seconds[1] > 1.1 * seconds[0] and peaks[1] < peaks[0]
    return right, f"T × {seconds[1] / seconds[0]:.2f}, peak × {peaks[1] / peaks[0]:.2f}"


@case("8", "buffers that the forward pass writes are those of PyTorch after two steps")
def buffers() -> Found:
    norm = equal_to_torch(
        Called(
            lambda self, x: self.norm(self.layer(x)).square().mean() + x.mean(),
            layer=nn.Linear(8, 8),
            norm=nn.BatchNorm1d(8),
        ),
        noise(4, 8),
    )

    def average(self: Any, x: torch.Tensor) -> torch.Tensor:
        y = self.layer(x)
        with torch.no_grad():
            self.book.mul_(0.9).add_(y.mean(0), alpha=0.1)
        return (y - self.book).square().mean()

    book = equal_to_torch(Called(average, layer=nn.Linear(8, 8), book=torch.zeros(8)), noise(4, 8))
    return norm[0] and book[0], f"statistics {norm[1]}; codebook {book[1]}"


LLAMA = {
    "model_type": "llama",
    "hidden_size": 256,
    "intermediate_size": 512,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 1000,
    "max_position_embeddings": 512,
    "architectures": ["LlamaForCausalLM"],
}


@case("9", "layouts of a config file end in a table")
def layouts_of_a_file() -> Found:
    with file_of(LLAMA) as path:
        code, out, err = said("layouts", "--hf", path, "--cluster", "1x4:h100", "--global-batch", "32")
    return code == 0 and "DP" in out, (err.strip().splitlines() or ["a table"])[-1][:80] if code else "a table"


@case("14", "configs of the Hub with auto_map of a known type, num_local_experts and an empty rank are read")
def configs() -> Found:
    experts = {"num_experts_per_tok": 2, "moe_intermediate_size": 64, "head_dim": 64}
    bodies = {
        "auto_map": LLAMA | {"auto_map": {"AutoModelForCausalLM": "modeling_x.X"}},
        "num_local_experts": LLAMA
        | experts
        | {"model_type": "qwen3_moe", "architectures": ["Qwen3MoeForCausalLM"], "num_local_experts": 4},
        "q_lora_rank null": LLAMA
        | {
            "num_experts_per_tok": 2,
            "moe_intermediate_size": 64,
            "model_type": "deepseek_v3",
            "architectures": ["DeepseekV3ForCausalLM"],
            "q_lora_rank": None,
            "kv_lora_rank": 32,
            "qk_nope_head_dim": 32,
            "qk_rope_head_dim": 16,
            "v_head_dim": 32,
            "n_routed_experts": 4,
            "n_group": 1,
            "topk_group": 1,
            "first_k_dense_replace": 1,
            "n_shared_experts": 1,
            "num_key_value_heads": 4,
        },
    }
    bad = []
    for name, body in bodies.items():
        with file_of(body) as path:
            code, _, err = said(
                "plan", "--hf", path, "--cluster", "1x2:h100", "-B", "2", "--global-batch", "4", "--layers", "2"
            )
        if code:
            bad.append(f"{name}: {err.strip().splitlines()[-1][:120]}")
    return not bad, "; ".join(bad) or f"{len(bodies)} planned"


OF_2026 = (
    "qwen3_next",
    "nemotron_h",
    "glm_moe_dsa",
    "deepseek_v4",
    "kimi_linear",
    "longcat_flash",
    "gemma4",
    "olmo_hybrid",
)


@case("15", "architectures that layouts do not price are refused by name, with what to do")
def unknown_families() -> Found:
    bad = []
    for family in OF_2026:
        with file_of(LLAMA | {"model_type": family}) as path:
            code, _, err = said("layouts", "--hf", path, "--cluster", "1x4:h100", "--global-batch", "32")
        if code != 2 or family not in err:
            bad.append(f"{family}: {code}, {(err.strip().splitlines() or [''])[-1][:90]}")
    return not bad, "; ".join(bad) or f"{len(OF_2026)} refused by name"


@case("15b", "planning says something at least every 10 s, from its first line on", slow=True)
def progress() -> Found:
    words = ("plan", "qwen3-30b-a3b", "--cluster", "4x8:h100", "-B", "4", "--global-batch", "128", "--remat", "auto")
    with subprocess.Popen(
        (sys.executable, "-m", "alpa_explore.cli", *words), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    ) as planning:
        timer = threading.Timer(90, planning.terminate)
        timer.start()
        at = [time.perf_counter() for _ in planning.stderr or ()]
        timer.cancel()
    gaps = [b - a for a, b in itertools.pairwise(at)]
    longest = max(gaps, default=float("inf"))
    return longest <= 10, f"{len(at)} lines, the longest silence {longest:.1f} s"


@case(
    "16",
    "an iteration of ViT-L on 8 H100 is computing in the main: a fixed overhead is at most a fifth of it",
    slow=True,
)
def fixed_overhead() -> Found:
    plan = ax.plan("vit-l-16", "1x8:h100", global_batch=256, num_microbatches=1, num_layers=2)
    share = plan.cluster.software.iteration_seconds / plan.predicted.iteration_seconds
    return share <= 0.2, f"{share:.0%} of {plan.predicted.iteration_seconds:.3f} s"


@case("17", "Llama-2-7B on A100 by default: 45–70 % of the peak, as people measure")
def a100() -> Found:
    answer = ax.layouts("llama-2-7b", "1x8:a100", global_batch=64)
    mfu = answer.best.mfu
    return 0.45 <= mfu <= 0.70, f"{mfu:.1%}"


@case("18", "a gradient that is zero by nature raises no alarm")
def zero_gradients() -> Found:
    body = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.Linear(8, 4))  # of the first bias
    return equal_to_torch(Called(lambda self, x: self.body(x).square().mean(), body=body), noise(8, 8))


@case("19", "the backward pass of a reflection is split by samples, not replicated")
def reflection() -> Found:
    model = Called(
        lambda self, x: nn.functional.pad(self.layer(x), (1, 1, 1, 1), mode="reflect").square().mean(),
        layer=nn.Conv2d(3, 4, 3, padding=1),
    )
    rows = [row for row in ax.coverage(ax.capture(model, (torch.empty(8, 3, 8, 8),))) if "reflection" in row.kind]
    return bool(rows) and all(row.how != "replicated" for row in rows), "; ".join(f"{r.kind}: {r.how}" for r in rows)


@case("20", "twelve steps of a recurrence written as a loop are planned on 2x2 within a minute", slow=True)
def unrolled_scan() -> Found:
    def call(self: Any, x: torch.Tensor) -> torch.Tensor:
        h = torch.zeros_like(x[:, 0])
        for step in range(12):
            h = torch.sigmoid(self.gate(h)) * h + torch.tanh(self.layer(x[:, step]))
        return h.square().mean()

    began = time.perf_counter()
    small(Called(call, gate=nn.Linear(64, 64), layer=nn.Linear(64, 64)), (torch.empty(8, 12, 64),), "2x2:a100")
    seconds = time.perf_counter() - began
    return seconds < 60, f"{seconds:.0f} s"


@case("21", "odd calls end in an error of this package that names what to do; names are known in any case")
def odd_calls() -> Found:
    model, inputs = Called(lambda self, x: self.layer(x).mean(), layer=nn.Linear(8, 8)), (torch.empty(4, 8),)
    graph = ax.capture(model, inputs)
    plan = ax.plan(graph, "1x1:v100", num_microbatches=2, num_layers=1)
    refused: dict[str, Callable[[], object]] = {
        "jit": lambda: ax.capture(torch.jit.trace(nn.Linear(8, 8), inputs), inputs),
        "coverage(name)": lambda: ax.coverage("no-such-model"),
        "replan(graph)": lambda: ax.replan(graph, num_microbatches=4),
        "what_if(stage text)": lambda: ax.what_if(plan, "zero"),
        "loss class": lambda: ax.capture(nn.Linear(8, 8), (*inputs, torch.empty(4, 8)), loss=nn.MSELoss),
    }
    taken: dict[str, Callable[[], object]] = {
        "torch.bfloat16": lambda: ax.capture(model, inputs, precision=torch.bfloat16),
        "BF16": lambda: ax.capture(model, inputs, precision="BF16"),
        "Adam": lambda: ax.capture(model, inputs, optimizer="Adam"),
        "DataParallel": lambda: ax.capture(nn.DataParallel(model), inputs),
        "1X1:V100": lambda: ax.Cluster.parse("1X1:V100"),
    }
    bad = []
    for name, call in (*refused.items(), *taken.items()):
        try:
            call()
        except AlpaExploreError as error:
            bad += [f"{name}: {error}"[:90]] * (name in taken)
        except Exception as error:  # a raw one is what is looked for
            bad.append(f"{name}: raw {type(error).__name__}: {error}"[:90])
        else:
            bad += [f"{name}: taken"] * (name in refused and name not in ("loss class", "coverage(name)", "jit"))
    code, _, err = said(
        "plan", "mlp-tiny", "--cluster", "1X2:V100", "-B", "AUTO", "--global-batch", "16", "--precision", "BF16"
    )
    bad += [f"-B AUTO: {err.strip().splitlines()[-1][:90]}"] * (code != 0)
    return not bad, "; ".join(bad) or f"{len(refused)} refused, {len(taken) + 1} taken"


@case("22", "verify_interpreted takes the model that it asks for")
def asked_model() -> Found:
    model = Called(lambda self, x: self.layer(x).square().mean(), layer=nn.Linear(8, 8))
    plan = small(model, (torch.empty(4, 8),))
    try:
        ax.verify_interpreted(plan)
    except AlpaExploreError as error:
        asked = "model" in str(error)
    else:
        return False, "verified without a model"
    return asked and ax.verify_interpreted(plan, model=model, data=noise(4, 8)).passed, "asked, given, equal"


@case("23", "boolean indexing and torch.where with one argument are named")
def data_dependent() -> Found:
    words = []
    for name, call in {
        "mask": lambda self, x: self.layer(x)[x > 0].mean(),
        "where": lambda self, x: self.layer(x)[torch.where(x[:, 0] > 0)[0]].mean(),
    }.items():
        try:
            ax.capture(Called(call, layer=nn.Linear(8, 8)), (torch.empty(4, 8),))
            return False, f"{name}: captured"
        except AlpaExploreError as error:
            words.append(str(error))
    right = all("mask" in w or "boolean" in w.lower() or "where" in w for w in words)
    return right, " | ".join(w[:70] for w in words)


def main() -> int:
    """Print a row for each case; 1 where one is wrong."""
    parser = argparse.ArgumentParser(description="What strangers found wrong once, each with its right value today.")
    parser.add_argument("numbers", nargs="*", metavar="NUMBER", help="some of them; default: all")
    parser.add_argument("--quick", action="store_true", help="leave out what takes more than about 20 s")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    rows, wrong = [], 0
    for one in CASES:
        if (options.numbers and one.number not in options.numbers) or (options.quick and one.slow):
            continue
        began = time.perf_counter()
        try:
            right, found = one.run()
        except Exception:  # a fault of this package: a wrong row, so that the others still run
            right, found = False, "RAISED " + traceback.format_exc().strip().splitlines()[-1][:160]
        wrong += not right
        row = {"case": one.number, "": "right" if right else "WRONG", "what is right": one.right, "found": found}
        rows.append(row | {"s": f"{time.perf_counter() - began:.1f}"})
        print(" | ".join(rows[-1].values()), file=sys.stderr, flush=True)
    print(render_table(rows))
    print(f"{len(rows)} cases, {wrong} wrong")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
