"""Write and read the state of one rank: its boxes of weights and buffers, and its optimizer state."""

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from alpa_explore.errors import RunError
from alpa_explore.execution.available_memory import available_bytes
from alpa_explore.programs.execution.execute import Boxes, RankExecutor
from alpa_explore.programs.execution.optimizer_step import PieceOptimizer
from alpa_explore.programs.program import Program
from alpa_explore.runtime.checkpoints.description import OPTIMIZER_STATE, STATE, WEIGHTS, step_name, writing_folder
from alpa_explore.runtime.checkpoints.layout import Share, optimizers_of, parameter_name
from alpa_explore.runtime.checkpoints.stored import Piece, StoredState, write_shard


class StateWriter:
    """Writes what one rank has to write of its state, one checkpoint after the other."""

    def __init__(self, folder: Path, place: int, executor: RankExecutor, share: Share) -> None:
        self.folder, self.place, self.executor, self.share = folder, place, executor, share
        self.pieces_written = 0
        self._beside: threading.Thread | None = None
        self._fault: Exception | None = None

    def state(self, step: int, *, requested: bool = False) -> Mapping[str, Any]:
        """Write the part of a checkpoint, when `step` steps are done; the report. RunError.

        `requested`: it was asked for while the run went on (`Run.checkpoint`).
        """
        self.wait()
        written = pieces(self.executor, self.share, STATE)
        return {**self._write(step_name(step), STATE, step, None, written), "requested": requested}

    def weights(self, step: int, save: str) -> Mapping[str, Any]:
        """Write the part of the trained weights, which will be moved to `save`; the report. RunError."""
        self.wait()
        written = pieces(self.executor, self.share, WEIGHTS)
        return {**self._write(WEIGHTS, WEIGHTS, step, save, written), "requested": False}

    def state_beside(self, step: int, done: Callable[[Mapping[str, Any]], None]) -> bool:
        """Write the part of a checkpoint while the rank goes on: from a copy in the memory of the host, by a thread,
        which calls `done` with the report. False, and nothing is begun, where the host has no room for the copy.

        The write before it is waited for. RunError where that one, or an earlier one, failed.
        """
        self.wait()
        state = list(pieces(self.executor, self.share, STATE))
        available = available_bytes()
        if available is not None and sum(value.nbytes for *_, value in state) > available / 2:
            return False
        copied = [(name, shape, box, value.detach().to("cpu", copy=True)) for name, shape, box, value in state]
        self._beside = threading.Thread(target=partial(self._write_beside, step, copied, done), daemon=True)
        self._beside.start()
        return True

    def check(self) -> None:
        """RunError where a part of a checkpoint could not be written beside."""
        if self._fault is not None:
            raise self._fault

    @property
    def writing(self) -> bool:
        """Whether a part of a checkpoint is being written beside. RunError where it could not be."""
        self.check()
        return self._beside is not None and self._beside.is_alive()

    def wait(self) -> None:
        """Until nothing is being written beside any more. RunError where it could not be."""
        if self._beside is not None:
            self._beside.join()
        assert not self.writing

    def _write_beside(self, step: int, copied: Iterable[Piece], done: Callable[[Mapping[str, Any]], None]) -> None:
        try:
            done({**self._write(step_name(step), STATE, step, None, copied), "requested": False})
        except Exception as error:  # of the rank, which raises it when it looks for it
            self._fault = error

    def _write(self, name: str, kind: str, step: int, save: str | None, written: Iterable[Piece]) -> Mapping[str, Any]:
        start, folder = time.perf_counter(), writing_folder(self.folder, name)
        try:
            files = write_shard(folder, self.place, self._counted(written))
        except OSError as error:
            raise RunError(
                "The checkpoint was not written" if kind == STATE else "The trained weights were not saved",
                found=f"{folder}: {error.strerror or error}",
                remedy="Free some space, or give a --folder on another disk; the checkpoint before is whole.",
            ) from error
        seconds = time.perf_counter() - start
        return {"name": name, "kind": kind, "step": step, "save": save, "files": files, "seconds": seconds}

    def _counted(self, written: Iterable[Piece]) -> Iterator[Piece]:
        for piece in written:
            yield piece
            self.pieces_written += 1


def pieces(executor: RankExecutor, share: Share, kind: str) -> Iterator[Piece]:
    """What a rank writes: of the weights alone, or of the whole state."""
    graph = executor.program.graph
    for stage, lasting in share.weights:
        tensor = graph.tensors[lasting.tensor]
        yield tensor.name, tensor.shape, lasting.box, executor.lasting[stage, lasting.value]
    for stage, step in share.optimizers if kind == STATE else ():
        name, shape = parameter_name(graph, step), graph.tensors[graph.parameters[step.parameter].tensor].shape
        for key, value in executor.optimizers[stage, step.parameter].state.items():
            divided = value.dim() == len(shape)
            if divided or step.parameter in share.counters:
                whole, box = (shape, step.box) if divided else ((), ())
                yield f"{OPTIMIZER_STATE}{name}.{key}", whole, box, value


def boxes_of(stored: StoredState, program: Program) -> Boxes:
    """The weights and buffers of a checkpoint, box by box."""
    return lambda tensor, box: stored.box(program.graph.tensors[tensor].name, box)


def restore_optimizers(stored: StoredState, executor: RankExecutor) -> None:
    """Give a rank the optimizer state of its boxes."""
    for stage, step in optimizers_of(executor.program, executor.rank):
        name = parameter_name(executor.program.graph, step)
        executor.optimizers[stage, step.parameter] = PieceOptimizer(
            step.kind,
            stored.box(name, step.box).to(executor.device),
            executor.learning_rate,
            stored.optimizer_state(name, step.box),
        )
