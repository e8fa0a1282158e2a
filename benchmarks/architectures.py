"""Which architectures are captured, divided and planned: Hugging Face configs at two layers on the meta device, and
recurrent and recommendation models.

    python benchmarks/architectures.py [NAME …] [--cluster 2x4:a100] [--limit-seconds 60]

Each runs in a process of its own; one that fails, or takes longer than the limit, is a row with its reason. No weights
are downloaded. Configs are those that `transformers` makes by itself, at their own widths, with a small vocabulary.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path

OWN = ("lstm", "gru", "dlrm")
HUGGING_FACE = (
    "llama qwen2 qwen3 mistral gemma gemma2 phi phi3 gpt2 gpt_neox gptj gpt_neo opt bloom falcon stablelm olmo2",
    "granite cohere starcoder2 mixtral qwen3_moe bert roberta distilbert electra t5 bart vit mamba",
)
SIZES = {
    **dict.fromkeys(("num_hidden_layers", "num_layers", "n_layer", "n_layers", "encoder_layers", "decoder_layers"), 2),
    "num_decoder_layers": 2,
    "vocab_size": 1024,
}
"""Attributes that a config has under one of these names, and what they become."""
SAMPLES, POSITIONS, MICROBATCHES = 8, 32, 4


def measure(name: str, cluster: str) -> dict[str, object]:
    """The row of one architecture: what was reached, seconds of each pass, the reason where one failed."""
    # Imported here: the parent, which waits for the children, needs neither torch nor the planner.
    import alpa_explore as ax
    from alpa_explore.errors import AlpaExploreError

    row: dict[str, object] = {"name": name}
    try:
        model, inputs = own(name) if name in OWN else hugging_face(name)
        before = time.perf_counter()
        graph = ax.capture(model, inputs)
        row["capture_seconds"], row["operators"] = time.perf_counter() - before, len(graph.operators)
        row["replicated"] = sorted({c.kind for c in ax.coverage(graph) if c.how == "replicated"})
        print(json.dumps(row), flush=True)  # what is known should the planner be stopped
        before = time.perf_counter()
        plan = ax.plan(graph, ax.Cluster.parse(cluster), num_microbatches=MICROBATCHES, num_layers=2)
        row["plan_seconds"], row["iteration_seconds"] = time.perf_counter() - before, plan.predicted.iteration_seconds
    except AlpaExploreError as error:
        row["reason"] = " ".join(str(error).split())
    except Exception as error:  # a fault of this package: a row too, so that the others still run
        row["reason"] = f"FAULT {type(error).__name__}: {' '.join(str(error).split())}"
    return row


def hugging_face(name: str):  # type: ignore[no-untyped-def]  # a module of torch, which only the child imports
    """A model of type `name` with two layers on the meta device, and its inputs."""
    import torch
    import transformers

    config = transformers.AutoConfig.for_model(name)
    for key, value in SIZES.items():
        if hasattr(config, key):
            setattr(config, key, value)
    for key in ("pad_token_id", "eos_token_id", "bos_token_id"):
        if isinstance(getattr(config, key, None), int):
            setattr(config, key, 0)
    config.use_cache = False
    makers = (transformers.AutoModelForCausalLM, transformers.AutoModelForSeq2SeqLM, transformers.AutoModelForMaskedLM)
    if name == "vit":
        makers = (transformers.AutoModelForImageClassification,)
    elif name in ("t5", "bart"):
        makers = makers[1:2]
    elif name in ("bert", "roberta", "distilbert", "electra"):
        makers = makers[2:]
    with torch.device("meta"):
        model = makers[0].from_config(config)
        if name == "vit":
            images = torch.zeros(SAMPLES, 3, config.image_size, config.image_size)
            return model, {"pixel_values": images, "labels": torch.zeros(SAMPLES, dtype=torch.int64)}
        tokens = torch.zeros(SAMPLES, POSITIONS, dtype=torch.int64)
    return model, {"input_ids": tokens, "labels": tokens}


def own(name: str):  # type: ignore[no-untyped-def]  # a module of torch, which only the child imports
    """A recurrent language model or a model of clicks, and its inputs."""
    import torch
    from torch import nn
    from torch.nn import functional as F

    class Recurrent(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table, self.head = nn.Embedding(1024, 256), nn.Linear(256, 1024)
            self.layers = (nn.LSTM if name == "lstm" else nn.GRU)(256, 256, 2, batch_first=True)

        def forward(self, tokens: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
            scores = self.head(self.layers(self.table(tokens))[0])
            return F.cross_entropy(scores.flatten(0, 1), targets.flatten())

    class Clicks(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.bottom = nn.Linear(16, 64)
            self.tables = nn.ModuleList(nn.EmbeddingBag(4096, 64, mode="sum") for _ in range(4))
            self.top = nn.Sequential(nn.Linear(25, 64), nn.ReLU(), nn.Linear(64, 1))

        def forward(self, dense: torch.Tensor, ids: torch.Tensor, clicked: torch.Tensor) -> torch.Tensor:
            every = [self.bottom(dense), *(t(i) for t, i in zip(self.tables, ids.unbind(1), strict=True))]
            stacked = torch.stack(every, 1)
            scores = self.top((stacked @ stacked.transpose(1, 2)).flatten(1)).squeeze(1)
            return F.binary_cross_entropy_with_logits(scores, clicked)

    with torch.device("meta"):
        if name == "dlrm":
            ids = torch.zeros(64, 4, 8, dtype=torch.int64)
            return Clicks(), (torch.zeros(64, 16), ids, torch.zeros(64))
        tokens = torch.zeros(SAMPLES, POSITIONS, dtype=torch.int64)
        return Recurrent(), (tokens, tokens)


def row_of(name: str, cluster: str, limit_seconds: float) -> dict[str, object]:
    """`measure` in a process of its own."""
    command = [sys.executable, __file__, name, "--cluster", cluster, "--child"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=limit_seconds, check=False)
        output, reason = done.stdout, f"ended with code {done.returncode}"
    except subprocess.TimeoutExpired as expired:
        given = expired.stdout or b""
        output = given.decode() if isinstance(given, bytes) else given
        reason = f"not done after {limit_seconds:.0f} s"
    lines = [line for line in output.splitlines() if line.startswith("{")]
    row: dict[str, object] = json.loads(lines[-1]) if lines else {"name": name}
    if "plan_seconds" not in row:
        row.setdefault("reason", reason)
    return row


def main() -> None:
    """Print the table, a row as soon as it is known."""
    parser = argparse.ArgumentParser(description=Path(__file__).stem)
    parser.add_argument("names", nargs="*", default=[*OWN, *" ".join(HUGGING_FACE).split()])
    parser.add_argument("--cluster", default="2x4:a100")
    parser.add_argument("--limit-seconds", type=float, default=60)
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        print(json.dumps(measure(options.names[0], options.cluster)), flush=True)
        return
    print(f"{'architecture':16} {'operators':>9} {'captured s':>10} {'planned s':>9}  replicated; reason")
    for name in options.names:
        row = row_of(name, options.cluster, options.limit_seconds)
        captured, planned = (f"{row[k]:.1f}" if k in row else "-" for k in ("capture_seconds", "plan_seconds"))
        kinds = ", ".join(row.get("replicated", []))  # type: ignore[arg-type]  # a list of kinds
        said = "; ".join(text for text in (kinds, str(row.get("reason", ""))[:300]) if text)
        print(f"{name:16} {row.get('operators', '-'):>9} {captured:>10} {planned:>9}  {said}", flush=True)


if __name__ == "__main__":
    main()
