"""Ports for programs that a test starts, and that cannot say which port the system gave them."""

import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager


@contextmanager
def reserved_ports(count: int, host: str = "") -> Iterator[list[int]]:
    """Ports at which a program can listen, and which the system gives to nobody who asks for any free one.

    They are bound here, and not listened at: then a program that allows an address in use, as servers do, may bind
    them as well.
    """
    with ExitStack() as bound:
        sockets = [bound.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            one.bind((host, 0))
        yield [one.getsockname()[1] for one in sockets]
