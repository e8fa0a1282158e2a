"""The layouts of the course in plain PyTorch: one function each, on four processes of this machine.

    torchrun --nproc-per-node 4 notebooks/pytorch/by_hand.py data
    torchrun --nproc-per-node 4 notebooks/pytorch/by_hand.py all 1x4:cpu

Every function trains the same small GPT on the same samples and returns the loss of each step. Every process also trains
it alone: the losses must be the same. They fall, since each word follows from the one before it.

With a cluster, the planner's prediction stands beside what was measured. `1x4:cpu` is another machine; `alpa-explore
calibrate -o mine.json` measures this one, for `1x4:mine.json`.
"""

import copy
import json
import os
import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed._functional_collectives import all_gather_single_autograd
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.pipelining import PipelineStage, Schedule1F1B
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.functional import cross_entropy, gelu, scaled_dot_product_attention
from torch.nn.parallel import DistributedDataParallel

WORDS, WIDTH, HEADS, BLOCKS, POSITIONS, SAMPLES, STEPS = 64, 64, 4, 4, 32, 16, 8


class Block(nn.Module):
    """Attention and MLP. `gather` is what context parallelism puts in its place: it makes all keys from a device's."""

    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.q, self.k, self.v, self.out = (nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(4))
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH, bias=False)
        self.gather, self.mask = (lambda x: x), None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.norm1(x)
        q, k, v = (p(h).unflatten(-1, (-1, WIDTH // HEADS)).transpose(1, 2) for p in (self.q, self.k, self.v))
        k, v = self.gather(k), self.gather(v)
        attended = scaled_dot_product_attention(q, k, v, attn_mask=self.mask, is_causal=self.mask is None)
        x = x + self.out(attended.transpose(1, 2).flatten(2))
        return x + self.down(gelu(self.up(self.norm2(x))))


class Gpt(nn.Module):
    """Embedding, blocks, head."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(WORDS, WIDTH)
        self.position = nn.Parameter(0.02 * torch.randn(POSITIONS, WIDTH))
        self.blocks = nn.ModuleList(Block() for _ in range(BLOCKS))
        self.head = nn.Linear(WIDTH, WORDS, bias=False)

    def forward(self, words: torch.Tensor, first: int = 0) -> torch.Tensor:
        x = self.embedding(words) + self.position[first : first + words.shape[1]]
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def loss_of(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """The mean over all words."""
    return cross_entropy(logits.flatten(0, 1), targets.flatten())


def adam(parameters: object) -> torch.optim.Optimizer:
    """One tensor after the other: some are divided, others not."""
    return torch.optim.Adam(parameters, lr=3e-3, foreach=False)


def trained(model: nn.Module, step_loss: object) -> list[float]:
    """Some steps with Adam; `step_loss(model)` is the loss on the part of the samples that this process has."""
    optimizer, losses = adam(model.parameters()), []
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = step_loss(model)
        loss.backward()
        optimizer.step()
        mean = loss.detach().clone()
        dist.all_reduce(mean)
        losses.append(float(mean) / dist.get_world_size())
    return losses


# --- The layouts. Each starts from the same model, and takes its part of the same samples.


def alone(model: nn.Module, words: torch.Tensor, targets: torch.Tensor) -> list[float]:
    """Every process does everything."""
    return trained(model, lambda m: loss_of(m(words), targets))


def data(model: nn.Module, words: torch.Tensor, targets: torch.Tensor) -> list[float]:
    """DP 4: a quarter of the samples each; DDP sums gradients in buckets, beside the backward pass."""
    own_words, own_targets = (part.chunk(4)[dist.get_rank()] for part in (words, targets))
    return trained(DistributedDataParallel(model), lambda m: loss_of(m(own_words), own_targets))


def sharded(model: nn.Module, words: torch.Tensor, targets: torch.Tensor) -> list[float]:
    """DP 4 · ZeRO-3: the same, and each block's weights are gathered before it runs and freed after it."""
    mesh = init_device_mesh("cpu", (4,))
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    own_words, own_targets = (part.chunk(4)[dist.get_rank()] for part in (words, targets))
    return trained(model, lambda m: loss_of(m(own_words), own_targets))


def tensor(model: nn.Module, words: torch.Tensor, targets: torch.Tensor) -> list[float]:
    """TP 4: a head and a quarter of the MLP each: first matrices by columns, second ones by rows, two sums a block."""
    mesh = init_device_mesh("cpu", (4,))
    columns, rows = ColwiseParallel(), RowwiseParallel()
    plan = {"q": columns, "k": columns, "v": columns, "out": rows, "up": columns, "down": rows}
    for block in model.blocks:
        parallelize_module(block, mesh, plan)
    return trained(model, lambda m: loss_of(m(words), targets))


def pipeline(model: nn.Module, words: torch.Tensor, targets: torch.Tensor) -> list[float]:
    """PP 4: a block each, four microbatches in 1F1B order; only activations and their gradients are sent."""
    rank = dist.get_rank()
    model.blocks = model.blocks[rank : rank + 1]
    first, last, whole = rank == 0, rank == 3, model

    class Stage(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.part = whole

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = self.part.embedding(x) + self.part.position if first else x
            x = self.part.blocks[0](x)
            return self.part.head(x) if last else x

    stage = Stage()
    schedule = Schedule1F1B(PipelineStage(stage, rank, 4, torch.device("cpu")), n_microbatches=4, loss_fn=loss_of)
    optimizer, losses = adam(p for p in stage.parameters()), []
    for _ in range(STEPS):
        optimizer.zero_grad()
        of_microbatches: list[torch.Tensor] = []
        schedule.step(*([words] if first else []), target=targets if last else None, losses=of_microbatches)
        optimizer.step()
        mean = torch.stack(of_microbatches).mean().detach() if last else torch.zeros(())
        dist.all_reduce(mean)
        losses.append(float(mean))
    return losses


def context(model: nn.Module, words: torch.Tensor, targets: torch.Tensor) -> list[float]:
    """CP 4: a quarter of the positions each; every device gathers the keys and values of all, and sums gradients."""
    rank, own = dist.get_rank(), POSITIONS // 4
    own_words, own_targets = (part.chunk(4, dim=1)[rank].contiguous() for part in (words, targets))
    places = torch.arange(POSITIONS)
    mask = places[rank * own : (rank + 1) * own, None] >= places
    for block in model.blocks:
        block.mask, block.gather = mask, lambda x: all_gather_single_autograd(x.contiguous(), 2, dist.group.WORLD)
    parallel = DistributedDataParallel(model)
    return trained(parallel, lambda m: loss_of(m(own_words, rank * own), own_targets))


LAYOUTS = {"data": data, "sharded": sharded, "tensor": tensor, "pipeline": pipeline, "context": context}
BASELINES = {
    "data": ("data-parallel", 1, {}),
    "sharded": ("zero-3", 1, {}),
    "tensor": ("megatron", 1, {"tp": 4}),
    "pipeline": ("megatron", 4, {"pp": 4}),
    "context": ("megatron", SAMPLES, {"cp": 4, "exchange": "all-gather"}),
}
"""Layout -> the same as `ax.baseline` has it: kind, microbatches, degrees. It shares sequences one by one."""


def predicted_seconds(name: str, cluster: str) -> float:
    """Of a step, by the planner's cost model."""
    import alpa_explore as ax

    kind, microbatches, degrees = BASELINES[name]
    words = torch.zeros(SAMPLES // microbatches, POSITIONS, dtype=torch.long)
    graph = ax.capture(Gpt(), (words, words), loss=loss_of, precision="float32")
    plan = ax.baseline(graph, cluster, kind, num_microbatches=microbatches, num_layers=4, **degrees)
    return plan.predicted.iteration_seconds


def main(names: list[str], cluster: str = "") -> None:
    """Run layouts, and print a line of JSON for each."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    model = Gpt()
    words = torch.randint(WORDS, (SAMPLES, 1)) + torch.arange(POSITIONS + 1) * 7
    words, targets = (words % WORDS)[:, :-1], (words % WORDS)[:, 1:].contiguous()
    expected = alone(copy.deepcopy(model), words, targets)
    found = []
    for name in LAYOUTS if names == ["all"] else names:
        dist.barrier()
        begun = time.perf_counter()
        losses = LAYOUTS[name](copy.deepcopy(model), words, targets)
        seconds = (time.perf_counter() - begun) / STEPS
        error = max(abs(a - b) for a, b in zip(losses, expected, strict=True))
        found.append({"layout": name, "losses": losses, "error": error, "measured_seconds": seconds})
    first = dist.get_rank() == 0
    dist.destroy_process_group()
    for row in found if first else []:
        if cluster:
            row["predicted_seconds"] = predicted_seconds(row["layout"], cluster)
        print(json.dumps(row), flush=True)


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    asked = sys.argv[1:] or ["all"]
    main([name for name in asked if ":" not in name], next((name for name in asked if ":" in name), ""))
    # Caches of DTensor keep the mesh, and so the threads of gloo, when the group is destroyed. One that frees its last
    # message while the interpreter ends would abort the process, so this ends without that. All is printed.
    os._exit(0)
