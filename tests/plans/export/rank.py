"""A rank that runs exported PyTorch code, and compares loss, gradients and weights with one process.

    torchrun --nproc-per-node N rank.py EXPORTED.py
    python rank.py EXPORTED.py N [EXPORTED.py N …]

The second starts the ranks of one after the other as copies of a process that has imported torch, which is most of what
torchrun's ranks do. Prints a line for each, on rank 0: the largest difference of any rank, relative to the largest
entry, of loss, gradients and weights; or that it has failed.
"""

import importlib.util
import json
import os
import signal
import socket
import sys
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor

STEPS, RATE = 2, 0.5


def main() -> None:
    paths, counts = sys.argv[1::2], sys.argv[2::2]
    if not counts:
        compare(_module(paths[0]))
    for path, count in zip(paths, counts, strict=True):
        code = _module(path)  # here, so that what one imports is imported for all
        if not (pid := os.fork()):
            _be_ranks(int(count))
            compare(code)
        if os.waitpid(pid, 0)[1]:
            print(json.dumps({"failed": path}), flush=True)


def compare(code: Any) -> None:
    """Run some steps as one of the ranks; ends the process."""
    dist.init_process_group("gloo")
    generator = torch.Generator().manual_seed(1)
    shape = (STEPS, code.MICROBATCHES * code.MICROBATCH * code.DATA, code.LENGTH + 1)
    batches = torch.randint(code.VOCABULARY, shape, generator=generator)
    expected = _one_process(code.make_model(), batches)
    run = code.setup(code.make_model(), code.LENGTH, "cpu")
    worst = {"loss": 0.0, "gradients": 0.0, "weights": 0.0}
    seen = set()
    for batch, (loss, gradients, weights) in zip(batches, expected, strict=True):
        found = code.step(run, batch[:, :-1], batch[:, 1:])
        worst["loss"] = max(worst["loss"], abs(found.item() - loss) / abs(loss))
        for stage in run.stages:
            for name, weight in stage.named_parameters():
                if weight.grad is None:
                    continue  # positions beside a tied embedding, on the last stage
                plain = name.removeprefix("model.").replace("_checkpoint_wrapped_module.", "")
                seen.add(plain)
                worst["gradients"] = max(worst["gradients"], _difference(weight.grad, gradients[plain]))
                with torch.no_grad():
                    weight -= RATE * weight.grad
                worst["weights"] = max(worst["weights"], _difference(weight.detach(), weights[plain]))
                weight.grad = None
    every: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(every, (worst, sorted(seen)))
    if dist.get_rank() == 0:
        differences = {name: max(found[name] for found, _ in every) for name in worst}
        names = {name for _, some in every for name in some}
        print(json.dumps({**differences, "missing": sorted(set(expected[0][1]) - names)}), flush=True)
    dist.barrier()
    dist.destroy_process_group()
    sys.stdout.flush()
    os._exit(0)  # threads of gloo may abort a process that ends as usual


def _be_ranks(count: int) -> None:
    """Returns in a copy of this process for each rank; this one ends with them, by 1 and at once where one fails."""
    place = socket.socket()  # bound to the end, so that no other program gets its port; the first rank listens there
    place.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    place.bind(("127.0.0.1", 0))
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(place.getsockname()[1]), WORLD_SIZE=str(count))
    running = set()
    for rank in range(count):
        if not (pid := os.fork()):
            os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank))
            return
        running.add(pid)
    while running:
        pid, status = os.wait()
        running.discard(pid)
        if status:
            for other in running:
                os.kill(other, signal.SIGKILL)
            os._exit(1)
    os._exit(0)


def _one_process(model: torch.nn.Module, batches: torch.Tensor) -> list[tuple[float, Any, Any]]:
    steps = []
    for batch in batches:
        loss = model(batch[:, :-1], batch[:, 1:])
        loss.backward()
        gradients = {name: weight.grad.clone() for name, weight in model.named_parameters()}
        with torch.no_grad():
            for weight in model.parameters():
                weight -= RATE * weight.grad
                weight.grad = None
        weights = {name: weight.detach().clone() for name, weight in model.named_parameters()}
        steps.append((loss.item(), gradients, weights))
    return steps


def _difference(found: torch.Tensor, expected: torch.Tensor) -> float:
    whole = found.full_tensor() if isinstance(found, DTensor) else found
    return ((whole - expected).abs().max() / expected.abs().max()).item()


def _module(path: str) -> Any:
    spec = importlib.util.spec_from_file_location("exported", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["exported"] = module
    spec.loader.exec_module(module)
    return module


if __name__ == "__main__":
    main()
