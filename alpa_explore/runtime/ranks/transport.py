"""The transport between processes by torch.distributed: gloo between CPUs, NCCL between GPUs.

All ranks create the groups of all collectives at the start, in the same order. Messages between two ranks arrive in the
order in which they are sent, because NCCL has no tags: a receiver that needs a later message first receives and keeps
the earlier ones. This causes no extra waiting, since the sender sends the earlier ones first anyway and sends do not
block. Over gloo a thread receives ahead (`inbox`); an NCCL receive ahead would occupy the device while it waits.

gloo transfers a message once its receiver has asked for it, not before. A rank that asks only when it needs the message
waits for the whole transfer; one that asks earlier computes meanwhile, as the simulated timeline has it. So a thread
asks for what the sender's next task sends as soon as the rank has taken what the one before sent: one task ahead, which
bounds the memory.
"""

import queue
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain

import torch
import torch.distributed as dist

from alpa_explore.programs.execution.execute import Arriving
from alpa_explore.programs.program import Box, Collective, Receive, Send
from alpa_explore.runtime import tuning
from alpa_explore.runtime.job import RankJob, receives
from alpa_explore.runtime.ranks.times import Traffic
from alpa_explore.schedules.task import ONCE_AN_ITERATION, Task
from alpa_explore.sharding.local.steps import Reduction
from alpa_explore.sharding.reshard import StepKind

MessageKey = tuple[int, int, bool]
"""(message, microbatch, whether an update task sends it)."""
Ask = Callable[[MessageKey], tuple[dist.Work, torch.Tensor]]
"""Begins to receive a message; the tensor is whole when the work is over."""
Arrived = Callable[[MessageKey, torch.Tensor, float], None]
"""Is told of a message that is here, and when it was asked for by `time.perf_counter`."""


@dataclass(frozen=True, slots=True)
class _Message:
    key: MessageKey
    piece: torch.Tensor
    last: bool
    """Whether the sender's task sends nothing after it."""


class Inbox:
    """What one rank sends, in the order in which it does."""

    def __init__(self, name: str, ask: Ask, arrived: Arrived) -> None:
        """Start the thread, which calls `ask` and `arrived`."""
        self._ask, self._arrived = ask, arrived
        self._expected: queue.Queue[tuple[MessageKey, ...]] = queue.Queue()
        self._here: queue.Queue[_Message | Exception] = queue.Queue()
        self._ahead = threading.Semaphore(1)
        threading.Thread(target=self._run, name=name, daemon=True).start()

    def expect(self, tasks: Iterable[Sequence[MessageKey]]) -> None:
        """Add what each of the sender's tasks in an iteration sends."""
        for messages in tasks:
            if messages:
                self._expected.put(tuple(messages))

    def take(self) -> tuple[MessageKey, torch.Tensor]:
        """The next message; waits for it. Raises the error of a failed transfer."""
        message = self._here.get()
        if isinstance(message, Exception):
            raise message
        if message.last:
            self._ahead.release()
        return message.key, message.piece

    def _run(self) -> None:
        try:
            while True:
                self._receive(self._expected.get())
        except Exception as error:  # raised where the rank takes messages
            self._here.put(error)

    def _receive(self, keys: Sequence[MessageKey]) -> None:
        self._ahead.acquire()
        asked = time.perf_counter()
        for key, (work, piece) in [(key, self._ask(key)) for key in keys]:
            work.wait()
            self._arrived(key, piece, asked)
            self._here.put(_Message(key, piece, last=key == keys[-1]))


# Torch before 2.13 has this function under its older name.
_reduce_scatter = getattr(dist, "reduce_scatter_single", dist.reduce_scatter_tensor)
_OPERATIONS = {Reduction.SUM: dist.ReduceOp.SUM, Reduction.MAXIMUM: dist.ReduceOp.MAX}


class ProcessTransport:
    """The transport of the rank of this process."""

    def __init__(self, job: RankJob, rank: int, device: torch.device) -> None:
        """Create the groups. All ranks must have joined torch.distributed."""
        self.job, self.rank, self.device = job, rank, device
        self.waits_for = ""
        """A description of what the rank waits for now; empty while it does not wait."""
        self.collective_time, self.receive_time = Stopwatch(device), Stopwatch(device)
        self._place = {r: place for place, r in enumerate(job.ranks)}
        self._groups = {
            ranks: dist.new_group([self._place[r] for r in ranks], timeout=tuning.TORCH_TIMEOUT) for ranks in job.groups
        }
        # An NCCL communicator runs its operations in order, and a send occupies it until it is received: each
        # direction between two ranks needs a communicator of its own.
        nccl = device.type == "cuda"
        self._pairs = {
            p: dist.new_group([self._place[r] for r in p], timeout=tuning.TORCH_TIMEOUT) if nccl else None
            for p in job.pairs
        }
        self._receives = receives(job.program, rank)
        self._expected: dict[int, Iterator[MessageKey]] = {}
        self._kept: dict[tuple[int, MessageKey], torch.Tensor] = {}
        self._sent = _PendingSends(polls=nccl)
        self._counts: dict[tuple[int, int], int] = {}
        self.traffic = Traffic()
        self._timed = not nccl
        self._inboxes: dict[int, Inbox] = {}
        if not nccl:
            self.traffic.origin = _clock_origin(rank == job.ranks[0])
            self._inboxes = {
                source: Inbox(f"inbox of rank {source}", partial(self._ask, source), partial(self._arrived, source))
                for source in job.inbox
            }

    def begin(self) -> None:
        """Start an iteration."""
        for source, inbox in self._inboxes.items():
            inbox.expect(self._incoming(source))
        self._expected = {source: chain.from_iterable(self._incoming(source)) for source in self.job.inbox}

    def finish(self) -> None:
        """End an iteration: wait until all sends are over."""
        self.waits_for = "ranks that take what was sent"
        self._sent.empty()
        self.waits_for = ""
        assert not self._kept, "a program receives all that is sent"

    def collective(self, task: Task, instruction: Collective, piece: torch.Tensor, *sizes: torch.Tensor) -> Arriving:
        """The result of a collective on this rank. Sums are in torch.distributed's order."""
        yield from ()
        self.waits_for = f"{instruction.kind.value} with ranks {', '.join(map(str, instruction.ranks))}"
        began = time.perf_counter()
        with self.collective_time:
            result = self._rows(instruction, piece, *sizes) if sizes else self._collective(instruction, piece)
        if self._timed:
            larger = max(piece.numel(), result.numel()) * piece.element_size()
            self.traffic.exchanged(instruction.ranks, instruction.kind.value, larger, began)
        self.waits_for = ""
        return result

    def _collective(self, instruction: Collective, piece: torch.Tensor) -> torch.Tensor:
        members = sorted(instruction.ranks)
        group, count = self._groups[tuple(members)], len(members)
        if instruction.kind is StepKind.ALL_REDUCE:
            result = piece.clone(memory_format=torch.contiguous_format)
            dist.all_reduce(result, _OPERATIONS[instruction.reduction], group=group)
            return result
        if instruction.kind is StepKind.ALL_GATHER:
            assert instruction.joined is not None
            pieces = [torch.empty_like(piece, memory_format=torch.contiguous_format) for _ in members]
            dist.all_gather(pieces, piece.contiguous(), group=group)
            return torch.cat([pieces[members.index(r)] for r in instruction.ranks], instruction.joined)
        assert instruction.cut is not None
        if instruction.kind is StepKind.PERMUTE:
            return self._permuted(instruction, members, piece)
        chunks = torch.chunk(piece, count, instruction.cut)
        given = torch.stack([chunks[instruction.ranks.index(member)] for member in members])
        if instruction.kind is StepKind.REDUCE_SCATTER:
            result = torch.empty_like(given[0])
            _reduce_scatter(result, given.flatten(0, 1) if result.dim() else given, group=group)
            return result
        assert instruction.kind is StepKind.ALL_TO_ALL
        assert instruction.joined is not None
        taken = torch.empty_like(given)
        dist.all_to_all_single(taken, given, group=group)
        return torch.cat([taken[members.index(r)] for r in instruction.ranks], instruction.joined)

    def _rows(
        self, instruction: Collective, piece: torch.Tensor, sent: torch.Tensor, taken: torch.Tensor
    ) -> torch.Tensor:
        """All rows for this rank, in the order of the collective's ranks; `sent` and `taken` are in that order too."""
        ranks, members = instruction.ranks, sorted(instruction.ranks)
        places = [ranks.index(member) for member in members]
        chunks, arriving = torch.split(piece, sent.tolist()), taken.tolist()
        result = piece.new_empty(sum(arriving), *piece.shape[1:])
        dist.all_to_all_single(
            result,
            torch.cat([chunks[place] for place in places]),
            [arriving[place] for place in places],
            [len(chunks[place]) for place in places],
            group=self._groups[tuple(members)],
        )
        by_member = dict(zip(places, torch.split(result, [arriving[place] for place in places]), strict=True))
        return torch.cat([by_member[place] for place in range(len(ranks))])

    def _permuted(self, instruction: Collective, members: list[int], piece: torch.Tensor) -> torch.Tensor:
        """What this rank has after a permutation of chunks; empty messages between ranks that exchange none."""
        ranks, order, cut = instruction.ranks, instruction.order, instruction.cut
        assert cut is not None
        each, place = len(order) // len(ranks), ranks.index(self.rank)
        chunks = torch.chunk(piece, each, cut)
        size = chunks[0].numel()
        given: list[torch.Tensor] = []
        sent, taken, arriving = [0] * len(members), [0] * len(members), list[int]()
        for number, member in enumerate(members):
            slots = range(ranks.index(member) * each, (ranks.index(member) + 1) * each)
            mine = [order[slot] - place * each for slot in slots if order[slot] // each == place]
            given += [chunks[i].reshape(-1) for i in mine]
            sent[number] = len(mine) * size
            theirs = [i for i in range(each) if ranks[order[place * each + i] // each] == member]
            arriving += theirs
            taken[number] = len(theirs) * size
        result = piece.new_empty(piece.numel())
        group = self._groups[tuple(members)]
        dist.all_to_all_single(result, torch.cat(given), taken, sent, group=group)
        placed = [result[0:0]] * each
        for slot, chunk in zip(arriving, result.view(each, size), strict=True):
            placed[slot] = chunk.view(chunks[0].shape)
        return torch.cat(placed, cut)

    def send(self, task: Task, instruction: Send, piece: torch.Tensor) -> None:
        """Send without waiting; the piece is kept until the send is over."""
        if instruction.to == self.rank:
            self._kept[self.rank, _message_key(instruction.message, task)] = piece
            return
        piece = piece.contiguous()
        pair = (self.rank, instruction.to)
        if self._timed:  # before: a send copies what the system's buffer holds
            self.traffic.sent(instruction.to, _message_key(instruction.message, task))
        work = dist.isend(piece, self._place[instruction.to], group=self._pairs[pair], tag=self._tag(pair))
        assert work is not None, "both ranks are in the group"
        self._sent.put(work, piece)

    def receive(self, task: Task, instruction: Receive, source: int, box: Box) -> Arriving:
        """The piece that `source` sends; earlier messages of `source` are received and kept."""
        yield from ()
        awaited = _message_key(instruction.message, task)
        with self.receive_time:
            while (source, awaited) not in self._kept:
                self.waits_for = f"a message of rank {source}"
                key, piece = self._inboxes[source].take() if self._inboxes else self._receive(source)
                self.waits_for = ""
                self._kept[source, key] = piece
        return self._kept.pop((source, awaited))

    def _receive(self, source: int) -> tuple[MessageKey, torch.Tensor]:
        """The next message of `source`, on a GPU: queues the receive."""
        key = next(self._expected[source])
        work, piece = self._ask(source, key)
        work.wait()
        return key, piece

    def _ask(self, source: int, key: MessageKey) -> tuple[dist.Work, torch.Tensor]:
        """Begin to receive the next message of `source`, which is `key`."""
        pair = (source, self.rank)
        expected = self._receives[key[0], key[2]]
        extents = [last - first for first, last in dict(expected.pieces)[source]]
        piece = torch.empty(extents, dtype=getattr(torch, expected.dtype), device=self.device)
        work = dist.irecv(piece, self._place[source], group=self._pairs[pair], tag=self._tag(pair))
        assert work is not None, "both ranks are in the group"
        return work, piece

    def _arrived(self, source: int, key: MessageKey, piece: torch.Tensor, asked: float) -> None:
        self.traffic.received(source, key, piece.numel() * piece.element_size(), asked)

    def _tag(self, pair: tuple[int, int]) -> int:
        """The tag of the next message between two ranks, which both count; gloo matches messages by it."""
        self._counts[pair] = (self._counts.get(pair, -1) + 1) % 2**20
        return self._counts[pair]

    def _incoming(self, source: int) -> Iterator[list[MessageKey]]:
        """The messages that each task of `source` sends to this rank in an iteration, in order."""
        for task in self.job.program.order(source):
            messages = self.job.inbox[source].get((task.stage, task.action), ())
            yield [_message_key(message, task) for message in messages]


class Stopwatch:
    """The seconds spent in `with` blocks.

    On a GPU a block only queues its work, and waiting for NCCL delays the stream, not the host: there the device's
    clock counts, between two events of the current stream.
    """

    def __init__(self, device: torch.device) -> None:
        self._on_device = device.type == "cuda"
        self._seconds = 0.0
        self._began = 0.0
        self._events: list[tuple[torch.cuda.Event, torch.cuda.Event]] = []

    def __enter__(self) -> None:
        if self._on_device:
            self._events.append((_event(), _event()))
            self._events[-1][0].record()
        else:
            self._began = time.perf_counter()

    def __exit__(self, *_error: object) -> None:
        if self._on_device:
            self._events[-1][1].record()
        else:
            self._seconds += time.perf_counter() - self._began

    def seconds(self) -> float:
        """The seconds until now. On a GPU all blocks must be over there: synchronise first."""
        while self._events:
            first, last = self._events.pop()
            self._seconds += first.elapsed_time(last) / 1e3
        return self._seconds


def _clock_origin(first: bool) -> float:
    """By how many seconds this rank's clock is ahead of the first rank's, for the latter 0.

    Each other rank asks the first for its time, some times in turn. The quickest answer counts: it is right to half of
    the seconds that it took.
    """
    asked, answer = torch.zeros(1), torch.zeros(1, dtype=torch.float64)
    if first:
        for other in range(1, dist.get_world_size()):
            for _ in range(tuning.CLOCK_ROUNDS):
                dist.recv(asked, other)
                dist.send(answer.fill_(time.perf_counter()), other)
        return 0.0
    answers = []
    for _ in range(tuning.CLOCK_ROUNDS):
        before = time.perf_counter()
        dist.send(asked, 0)
        dist.recv(answer, 0)
        after = time.perf_counter()
        answers.append((after - before, (before + after) / 2 - answer.item()))
    return min(answers)[1]


def _event() -> torch.cuda.Event:
    return torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]  # torch has no annotation


class _PendingSends:
    """Keeps pieces that are being sent until the send is over, so that early microbatches free their memory early.

    A thread waits for the sends. A gloo send completes only when it is waited for. Waiting for NCCL would block the
    stream in which the rank computes, so there the thread polls.
    """

    def __init__(self, *, polls: bool) -> None:
        self._polls = polls
        self._queue: queue.Queue[tuple[dist.Work, torch.Tensor]] = queue.Queue()
        self._error: Exception | None = None
        threading.Thread(target=self._run, name="outbox", daemon=True).start()

    def put(self, work: dist.Work, piece: torch.Tensor) -> None:
        """Add a send that has begun."""
        self._queue.put((work, piece))

    def empty(self) -> None:
        """Wait until all sends are over; raises the error of a failed send."""
        self._queue.join()
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        while True:
            work, piece = self._queue.get()
            try:
                while self._polls and not work.is_completed():
                    time.sleep(tuning.PENDING_SEND_SECONDS)
                if not self._polls:
                    work.wait()
            except Exception as error:  # raised where the rank waits
                self._error = error
            del work, piece
            self._queue.task_done()


def _message_key(message: int, task: Task) -> MessageKey:
    return message, task.microbatch, task.action in ONCE_AN_ITERATION
