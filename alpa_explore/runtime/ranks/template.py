"""The template of agents: a process that has imported torch, and forks an agent whenever it is asked.

    python -m alpa_explore.runtime.ranks.template

The first run of a session waits for the import of torch, those after it do not. Standard input is a Unix socket, by
which the program that launches runs sends, for each agent, the descriptors of CHANNEL, LOG, REQUEST and PLACE
(`targets.local`). When that socket closes, the template ends. The agents do not: each ends when its own channel does.
"""

import gc
import importlib
import json
import os
import select
import signal
import socket
import sys
import traceback
from collections.abc import Sequence
from typing import NoReturn

from alpa_explore.runtime.ranks import agent

DESCRIPTORS = 4
"""The agent's end of a socket, which becomes its standard input; its log; its request (JSON: arguments, environment);
its current folder."""


class Template:
    """Forks agents, and says of each by its channel, a line each: its process id, then its exit code."""

    def __init__(self, asked: socket.socket) -> None:
        self._asked = asked
        self._channels: dict[int, socket.socket] = {}
        """Process id of an agent that runs -> its channel."""
        self._woken, self._wake = socket.socketpair()
        self._wake.setblocking(False)

    def run(self) -> None:
        """Fork an agent for each request, until nobody can ask any more and all have ended."""
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self._wake.fileno())
        asked = True
        while asked or self._channels:
            ready, _, _ = select.select([self._asked, self._woken] if asked else [self._woken], [], [])
            if self._woken in ready:
                self._woken.recv(4096)
                self._reap()
            if self._asked in ready:
                said, descriptors, _, _ = socket.recv_fds(self._asked, 1, DESCRIPTORS)
                asked = bool(said)
                if asked:
                    self._fork(descriptors)

    def _fork(self, descriptors: Sequence[int]) -> None:
        channel = socket.socket(fileno=descriptors[0])
        if not (pid := os.fork()):
            for other in (self._asked, self._woken, self._wake, *self._channels.values()):
                other.close()  # else the agent would hold the channels of other runs open
            _be_agent(descriptors)
        for descriptor in descriptors[1:]:
            os.close(descriptor)
        self._channels[pid] = channel
        _say(channel, pid)

    def _reap(self) -> None:
        for pid in list(self._channels):
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                with self._channels.pop(pid) as channel:
                    _say(channel, os.waitstatus_to_exitcode(status))


def _say(channel: socket.socket, number: int) -> None:
    try:
        channel.sendall(f"{number}\n".encode())
    except ConnectionError:  # nobody listens: the program that launched the run has ended
        return


def _be_agent(descriptors: Sequence[int]) -> NoReturn:
    """Be the agent, in the new process."""
    code = 1
    try:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.setsid()
        channel, log, request, place = descriptors
        for descriptor, standard in ((channel, 0), (log, 1), (log, 2)):
            os.dup2(descriptor, standard)
        os.fchdir(place)
        with open(request, encoding="utf-8") as stream:
            asked = json.load(stream)
        for descriptor in (channel, log, place):
            os.close(descriptor)
        os.environ.clear()
        os.environ.update(asked["environment"])
        importlib.invalidate_caches()  # the user's modules may be newer than the template
        code = agent.main(asked["arguments"])
    except SystemExit as end:
        code = int(end.code or 0)
    except BaseException:  # the process must end here in any case
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def main() -> int:
    """Import what agents need, and wait for requests."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    agent.import_all()
    gc.freeze()  # what is shared with the agents is not looked at again and so stays shared
    Template(socket.socket(fileno=0)).run()
    return 0


if __name__ == "__main__":
    sys.exit(main())
