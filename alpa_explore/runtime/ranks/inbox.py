"""The messages that one other rank sends to this one over gloo, received ahead of their use by a thread.

gloo transfers a message once its receiver has asked for it, not before. A rank that asks only when it needs the message
waits for the whole transfer; one that asks earlier computes meanwhile, as the simulated timeline has it. So the thread
asks for what the sender's next task sends as soon as the rank has taken what the one before sent: one task ahead, which
bounds the memory.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import torch
import torch.distributed as dist

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
