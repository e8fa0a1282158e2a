"""Families of transformers beyond causal language models, in tiny sizes: captured, planned, verified, what they keep.

    PYTHONPATH=. python benchmarks/families.py [NAME …] [--jobs 2] [--seconds 100] [--store]

A family is built from its default config, of which `small` lowers every size that it knows; one that this breaks is not
built, which says nothing of this package. It is planned for two CPUs, two steps are compared with one process and with
the module in plain PyTorch, and the bytes that a plan of plain PyTorch holds are compared with what autograd saves.

Each family has a process and so many seconds, since one that fails may take all memory. `--store` writes families.json
beside this file after each, and keeps the rows of those that are not tried. Exits with 1 where one trains to other
values, or ends with another error than a refusal of this package.
"""

from __future__ import annotations

import argparse
import inspect
import json
import multiprocessing
import os
import sys
import time
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

os.environ["HF_HUB_OFFLINE"] = "1"
import torch
import transformers
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES, MODEL_MAPPING_NAMES

import alpa_explore as ax
from alpa_explore.errors import AlpaExploreError
from tests.zoo.test_saved_tensors import held_bytes, saved_bytes

STORE = Path(__file__).with_suffix(".json")
MOST_WEIGHTS = 60_000_000
_SIZES = {
    32: "hidden_size d_model embed_dim n_embd dim word_embed_proj_dim embedding_size hidden_dim decoder_hidden_size "
    "encoder_hidden_size d_embed projection_dim out_hidden_size emb_dim backbone_hidden_size",
    64: "intermediate_size ffn_dim encoder_ffn_dim decoder_ffn_dim d_ff n_inner d_inner inner_dim dim_feedforward "
    "encoder_intermediate_size decoder_intermediate_size mlp_dim image_size",
    128: "vocab_size text_vocab_size",
    2: "num_hidden_layers n_layer n_layers num_layers encoder_layers decoder_layers num_encoder_layers "
    "num_decoder_layers num_hidden_layers_decoder depth encoder_num_hidden_layers decoder_num_hidden_layers",
    4: "num_attention_heads n_head n_heads num_heads encoder_attention_heads decoder_attention_heads "
    "num_key_value_heads num_attention_heads_decoder encoder_num_attention_heads decoder_num_attention_heads",
    512: "max_position_embeddings n_positions max_source_positions max_target_positions",
}
"""Most of a size -> the names that configs have for it."""
MOST = {name: most for most, names in _SIZES.items() for name in names.split()}
Row = dict[str, Any]


def small(config: Any) -> None:
    """Lower the sizes of a config and of those in it; no dropout."""
    for name, value in list(vars(config).items()):
        if hasattr(value, "to_dict"):
            small(value)
        elif isinstance(value, float) and "drop" in name:
            setattr(config, name, 0.0)
        elif isinstance(value, int) and not isinstance(value, bool):
            if value > MOST.get(name, value):
                setattr(config, name, MOST[name])
            elif name.endswith("_token_id") and value >= MOST["vocab_size"]:
                setattr(config, name, 1 + len(name))  # different for each


class Loss(torch.nn.Module):
    """The mean squares of the first two results of a model."""

    def __init__(self, model: torch.nn.Module, names: list[str]) -> None:
        super().__init__()
        self.model, self.names = model, names

    def forward(self, *inputs: torch.Tensor) -> torch.Tensor:
        made = self.model(**dict(zip(self.names, inputs, strict=True)), return_dict=True).values()
        floats = [value for value in made if isinstance(value, torch.Tensor) and value.is_floating_point()]
        return sum((value.float().pow(2).mean() for value in floats[:2]), torch.zeros(()))


def inputs_of(model: Any, config: Any) -> dict[str, torch.Tensor]:
    """Two samples of text, pictures or sound, by the names of the model's arguments."""
    seen, main = getattr(config, "vision_config", config), model.main_input_name
    size, given = getattr(seen, "image_size", 64), inspect.signature(model.forward).parameters
    size, found = size[0] if isinstance(size, list | tuple) else size or 64, {}
    if "input_ids" in (main, *given):
        found["input_ids"] = torch.randint(3, 100, (2, 16))
    if main == "pixel_values" or ("pixel_values" in given and seen is not config):
        found["pixel_values"] = torch.randn(2, getattr(seen, "num_channels", 3), size, size)
    if main == "input_values":
        found["input_values"] = torch.randn(2, 4000)
    if main == "input_features":
        frames = 2 * getattr(config, "max_source_positions", 100)
        found["input_features"] = torch.randn(2, getattr(config, "num_mel_bins", 80), frames)
    if "decoder_input_ids" in given:
        found["decoder_input_ids"] = torch.randint(3, 100, (2, 8))
    return found


def row_of(name: str) -> Row:
    """How far a family came."""
    torch.manual_seed(0)
    try:
        config = transformers.AutoConfig.for_model(name)
        small(config)
        model = transformers.AutoModel.from_config(config).eval()
        if sum(weight.numel() for weight in model.parameters()) > MOST_WEIGHTS:
            return {"state": "too large"}
        named = inputs_of(model, config)
        module, inputs = Loss(model, list(named)), tuple(named.values())
        with torch.no_grad():  # a module that keeps what it computed would keep its graph
            module(*inputs)
    except Exception as error:  # of the library, of other libraries that it lacks, or of sizes that do not go together
        return {"state": "not built", "why": f"{type(error).__name__}: {error}"[:200]}
    try:
        graph = ax.capture(module, inputs, name=name)
        row: Row = {"operators": len(graph.operators), "held": held_bytes(graph), "saved": saved_bytes(module, inputs)}
        plan = ax.plan(graph, "1x2:cpu", num_microbatches=2, num_layers=2, delta=2.0, cache=False)
        checked = ax.verify_interpreted(plan, graph=graph, model=module, data=lambda _: inputs)
        return {**row, "state": "verified" if checked.passed else "wrong", "error": checked.worst.relative_error}
    except AlpaExploreError as error:
        return {"state": "refused", "why": str(error)[:400]}
    except Exception as error:
        return {"state": "failed", "why": f"{type(error).__name__}: {error}"[:400]}


def _tell(name: str, to: Connection) -> None:
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    silent = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silent, 1)
    os.dup2(silent, 2)
    to.send(row_of(name))


def rows_of(names: Sequence[str], jobs: int, seconds: float) -> Iterator[Row]:
    """The row of each family, as they are done, from processes of their own."""
    waiting, running = list(names), dict[Connection, tuple[str, multiprocessing.process.BaseProcess, float]]()
    while waiting or running:
        while waiting and len(running) < jobs:
            here, there = multiprocessing.Pipe(duplex=False)
            name, fork = waiting.pop(0), multiprocessing.get_context("fork")
            started = fork.Process(target=_tell, args=(name, there))
            started.start()
            there.close()
            running[here] = name, started, time.monotonic()
        done = wait(list(running), timeout=1.0)
        for here, (name, process, began) in list(running.items()):
            took = time.monotonic() - began
            if here not in done and took < seconds:
                continue
            try:
                row = here.recv() if here in done else {"state": "too slow"}
            except EOFError:
                row = {"state": "failed", "why": "its process ended"}
            process.kill()
            process.join()
            del running[here]
            yield {"family": name, **row, "seconds": round(took, 1)}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--jobs", type=int, default=1, help="families at once")
    parser.add_argument("--seconds", type=float, default=100.0, help="for each family")
    parser.add_argument("--store", action="store_true")
    options = parser.parse_args()
    names = options.names or sorted(set(MODEL_MAPPING_NAMES) - set(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES))
    stored = {row["family"]: row for row in json.loads(STORE.read_text())} if STORE.exists() else {}
    states, ratios = Counter[str](), []
    for row in rows_of(names, options.jobs, options.seconds):
        states[row["state"]] += 1
        if row.get("saved"):
            ratios.append(row["held"] / row["saved"])
        print(" · ".join(f"{key} {value}" for key, value in row.items()), flush=True)
        if options.store:
            stored[row["family"]] = row
            STORE.write_text(json.dumps([stored[family] for family in sorted(stored)], indent=1) + "\n")
    exact, near = (sum(abs(ratio - 1) <= most for ratio in ratios) for most in (0.0, 0.01))
    print(f"{dict(states)}; of {len(ratios)} the bytes held are those saved for {exact}, within 1 % for {near}")
    return int(states["wrong"] + states["failed"] > 0)


if __name__ == "__main__":
    sys.exit(main())
