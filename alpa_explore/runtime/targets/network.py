"""What a script asks about the network of its machine: the interface towards another machine, and a port that is free.

python -m alpa_explore.runtime.targets.network interface HOST
python -m alpa_explore.runtime.targets.network port NUMBER
"""

import errno
import ipaddress
import socket
import sys

import psutil

from alpa_explore.errors import AlpaExploreError, OptionError


def interface_towards(host: str) -> str:
    """The network interface of this machine through which `host` (a name or an address) is reached.

    Nothing is sent. OptionError where the name is not known, no route leads there, or a name other than localhost leads
    to the loopback: other machines cannot reach this one there.
    """
    address = source_address(host)
    if _is_loopback(address) and not (host == "localhost" or _is_loopback(host)):
        raise OptionError(
            "The name of a machine leads to the loopback, which other machines cannot reach",
            found=f"{host} is {address} here",
            remedy="Set MASTER_ADDR to the address of a network card, or GLOO_SOCKET_IFNAME and NCCL_SOCKET_IFNAME "
            "to its name.",
        )
    if (name := interface_of(address)) is not None:
        return name
    raise OptionError(
        "No network interface holds the address from which another machine is reached",
        found=f"{address}, towards {host}",
        remedy="Set GLOO_SOCKET_IFNAME and NCCL_SOCKET_IFNAME to the name of one.",
    )


def interface_of(address: str) -> str | None:
    """The network interface of this machine that holds an IP address; None where none does."""
    for name, entries in psutil.net_if_addrs().items():
        if any(entry.address.partition("%")[0] == address for entry in entries):
            return name
    return None


def check_port(port: str) -> None:
    """OptionError where this machine cannot listen on that port."""
    try:
        socket.create_server(("", int(port))).close()
    except (OSError, OverflowError, ValueError) as error:
        in_use = isinstance(error, OSError) and error.errno == errno.EADDRINUSE
        raise OptionError(
            f"Port {port} of this machine " + ("is in use" if in_use else "cannot be had"),
            found=str(error),
            remedy="Set MASTER_PORT to a free one, on all machines.",
        ) from error


def parse_ports(text: str) -> tuple[int, ...]:
    """The ports of "29500-29600" or "29500". OptionError."""
    first, _, last = text.partition("-")
    try:
        found = tuple(range(int(first), int(last or first) + 1))
    except ValueError:
        found = ()
    if not found or not 0 < found[0] <= found[-1] < 2**16:
        raise OptionError("Ports are a number or two", found=repr(text), remedy="Give, for example, 29500-29600.")
    return found


def source_address(host: str) -> str:
    """The address of this machine from which packets to `host` are sent."""
    try:
        family, _, _, _, there = socket.getaddrinfo(host, 9, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect(there)  # of a datagram socket: it chooses the route and sends nothing
            address: str = probe.getsockname()[0]
    except OSError as error:
        raise OptionError(
            "Another machine of the run cannot be reached from here",
            found=f"{host}: {error.strerror or error}",
            remedy="Set MASTER_ADDR to a name or an address that this machine knows.",
        ) from error
    return address.partition("%")[0]


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def main(arguments: list[str]) -> int:
    """Print the interface towards a host, or check a port; 2 where there is none or it is taken."""
    question, value = arguments
    try:
        if question == "port":
            check_port(value)
        else:
            print(interface_towards(value))
    except AlpaExploreError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
