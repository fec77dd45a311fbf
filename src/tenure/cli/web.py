"""`tenure web`: the page of one application, without any code of yours."""

from __future__ import annotations

import argparse
import ipaddress
import os
from pathlib import Path
from typing import TYPE_CHECKING

from tenure.cli.jobs import application
from tenure.cli.listen_address import address_of, as_host, bound, is_loopback
from tenure.cli.output import say
from tenure.cli.person import person
from tenure.errors import ConfigurationError

if TYPE_CHECKING:
    from tenure.web.token_login import TokenLogin

PORT = 8321
TOKEN = "TENURE_WEB_TOKEN"  # noqa: S105 - the name of a variable
LOCAL = ("127.0.0.1", "::1")
"""A proxy on this machine is believed without --proxy."""
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

    address, port = address_of(arguments.listen, PORT)
    login = _token_login(arguments.token_file)
    if login is None and not is_loopback(address):
        raise ConfigurationError(
            f"--listen: {address} can be reached from other machines, so the page needs a token. Write --token-file "
            f"FILE or set {TOKEN}, and put a proxy with https in front; or leave --listen out, for this machine alone."
        )
    proxies = _proxies(arguments.proxy)
    if proxies and login is None:
        raise ConfigurationError(
            "--proxy: behind a proxy every caller seems to be local, so the page needs a token. Write --token-file "
            f"FILE or set {TOKEN}."
        )
    hosts = None
    if login is None or arguments.allow_host:
        hosts = frozenset(name.lower() for name in arguments.allow_host) | {as_host(address)}
    with application(arguments) as scheduler:
        page = stand_alone(scheduler, login=login, hosts=hosts, name=person(arguments), read_only=arguments.read_only)
        listener = bound(address, port)
        shown = f"http://{as_host(address)}:{listener.getsockname()[1]}/"
        who = "everyone who has the token" if login else "every user of this machine"
        may = "see it" if arguments.read_only else "see it and act"
        say(f"the page of {scheduler.application!r} is at {shown} ({who} may {may}); Ctrl-C ends it")
        config = uvicorn.Config(
            page,
            log_level="info" if arguments.verbose else "warning",
            access_log=bool(arguments.verbose),
            lifespan="off",
            ws="none",
            server_header=False,
            timeout_graceful_shutdown=DRAIN,
            proxy_headers=login is not None,
            forwarded_allow_ips=[*LOCAL, *proxies] if proxies else None,
        )
        uvicorn.Server(config).run([listener])
    return 0


def _proxies(given: list[str]) -> list[str]:
    """Addresses and networks. A name could be resolved to another address later."""
    for address in given:
        try:
            ipaddress.ip_network(address)
        except ValueError:
            raise ConfigurationError(
                f"--proxy: {address!r:.60} is not an address. Write that of the proxy, such as 10.0.0.5, or a network: "
                "10.0.0.0/24."
            ) from None
    return given


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
