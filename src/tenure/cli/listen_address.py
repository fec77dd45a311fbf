"""`--listen`: where `tenure web` and `tenure metrics` listen."""

from __future__ import annotations

import ipaddress
import socket
from contextlib import ExitStack

from tenure.errors import ConfigurationError


def address_of(given: str, usual: int) -> tuple[str, int]:
    """Address and port: '127.0.0.1:8321', '8321', '0.0.0.0' or '[::1]:8321'."""
    address, separator, port = given.rpartition(":")
    if not separator or given.endswith("]"):
        address, port = ("", given) if given.isdigit() else (given, str(usual))
    if not (port.isascii() and port.isdigit() and int(port) < 2**16):
        raise ConfigurationError(
            f"--listen: {given!r} is not an address with a port. Write 127.0.0.1:{usual}, or {usual}."
        )
    return address.strip("[]") or "127.0.0.1", int(port)


def is_loopback(address: str) -> bool:
    """By the address that the socket is bound to, and never by who calls: behind a proxy everybody is local."""
    if address == "localhost":
        return True
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False


def as_host(address: str) -> str:
    """As it is written in a URL."""
    return f"[{address}]" if ":" in address else address.lower()


def bound(address: str, port: int) -> socket.socket:
    """A socket that is bound there, and does not listen yet."""
    try:
        family, kind, protocol, _, where = socket.getaddrinfo(address, port, type=socket.SOCK_STREAM)[0]
        with ExitStack() as stack:
            listener = stack.enter_context(socket.socket(family, kind, protocol))
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(where)
            stack.pop_all()
    except OSError as error:
        raise ConfigurationError(
            f"--listen: cannot listen on {address}, port {port}: {error.strerror or error}. Another program may use "
            "the port: write --listen with another, or 0 for any."
        ) from None
    return listener
