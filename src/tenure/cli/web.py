"""`tenure web`: the page of one application, without any code of yours."""

from __future__ import annotations

import argparse
import ipaddress
import os
import socket
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from tenure.cli.jobs import application
from tenure.cli.output import say
from tenure.cli.person import person
from tenure.errors import ConfigurationError

if TYPE_CHECKING:
    from tenure.web.token_login import TokenLogin

PORT = 8321
TOKEN = "TENURE_WEB_TOKEN"  # noqa: S105 - the name of a variable
DRAIN = 1
"""Seconds that open streams get when the page ends. They open again at the next one."""


def web(arguments: argparse.Namespace) -> int:
    """Serve the page until SIGTERM or Ctrl-C."""
    from tenure.web.mounting import stand_alone

    try:
        import uvicorn
    except ImportError:
        raise ConfigurationError(
            "tenure web needs uvicorn, which is not installed. pip install 'tenure[web]'"
        ) from None

    address, port = _listen(arguments.listen)
    login = _token_login(arguments.token_file)
    if login is None and not _is_loopback(address):
        raise ConfigurationError(
            f"--listen: {address} can be reached from other machines, so the page needs a token. Write --token-file "
            f"FILE or set {TOKEN}, and put a proxy with https in front; or leave --listen out, for this machine alone."
        )
    hosts = None
    if login is None or arguments.allow_host:
        hosts = frozenset(name.lower() for name in arguments.allow_host) | {_as_host(address)}
    with application(arguments) as scheduler:
        page = stand_alone(scheduler, login=login, hosts=hosts, name=person(arguments), read_only=arguments.read_only)
        listener = _bound(address, port)
        shown = f"http://{_as_host(address)}:{listener.getsockname()[1]}/"
        who = "everyone who has the token" if login else "every user of this machine"
        may = "see it" if arguments.read_only else "see it and act"
        say(f"the page of {scheduler.application!r} is at {shown} ({who} may {may}); Ctrl-C ends it")
        config = uvicorn.Config(
            page,
            log_level="info" if arguments.verbose else "warning",
            access_log=bool(arguments.verbose),
            lifespan="off",
            server_header=False,
            timeout_graceful_shutdown=DRAIN,
            proxy_headers=login is not None,
        )
        uvicorn.Server(config).run([listener])
    return 0


def _listen(given: str) -> tuple[str, int]:
    """'127.0.0.1:8321', '8321', '0.0.0.0' or '[::1]:8321'."""
    address, separator, port = given.rpartition(":")
    if not separator or given.endswith("]"):
        address, port = ("", given) if given.isdigit() else (given, str(PORT))
    if not (port.isascii() and port.isdigit() and int(port) < 2**16):
        raise ConfigurationError(
            f"--listen: {given!r} is not an address with a port. Write 127.0.0.1:{PORT}, or {PORT}."
        )
    return address.strip("[]") or "127.0.0.1", int(port)


def _is_loopback(address: str) -> bool:
    """By the address that the socket is bound to, and never by who calls: behind a proxy everybody is local."""
    if address == "localhost":
        return True
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False


def _as_host(address: str) -> str:
    return f"[{address}]" if ":" in address else address.lower()


def _bound(address: str, port: int) -> socket.socket:
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


def _token_login(file: str | None) -> TokenLogin | None:
    from tenure.web.token_login import TokenLogin

    if file is not None:
        try:
            text = Path(file).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigurationError(f"--token-file: {file!r} cannot be read: {error}.") from None
        return TokenLogin(text.strip())
    token = os.environ.get(TOKEN)
    return None if token is None else TokenLogin(token.strip())
