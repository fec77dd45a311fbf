"""Who may see the page and who may act on it. Closed by default: what is not allowed here is refused.

Three questions, in this order, before a handler does anything:

  host      Is the page addressed by a name that it answers to? (A foreign name may be resolved to this address.)
  caller    Who asks, and with which rights? `authorize` or a token decides; without either every request is refused.
  origin    For a change: does the request come from a page of this very origin?

The handler of each operation then asks for the right to that operation. Hiding a button protects nothing.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable
from dataclasses import dataclass
from typing import Any, Literal

from starlette.requests import Request

from tenure.errors import ConfigurationError
from tenure.web.token_login import TokenLogin

OPERATIONS = frozenset(
    {
        "run-now",
        "run-now-arguments",
        "pause",
        "resume",
        "cancel",
        "retry",
        "backfill",
        "pause-backfill",
        "resume-backfill",
        "cancel-backfill",
        "remove",
        "restore",
        "reset",
        "resign",
    }
)
"""What a caller may be allowed to do. `run-now-arguments`: to run a job with arguments of one's own."""

Rights = Literal["read", "act"] | Collection[str]
"""'read': see everything, do nothing; 'act': do everything; or the names of the operations that are allowed."""


@dataclass(frozen=True, slots=True)
class Caller:
    """Who asks, and what they may do. The name is written into the history of what they do."""

    name: str
    rights: Rights = "read"

    def __post_init__(self) -> None:
        name: object = self.name
        if not isinstance(name, str) or len(name) > _LONGEST:
            raise ConfigurationError(f"authorize: {self.name!r:.80} is no name of at most {_LONGEST} characters.")
        if isinstance(self.rights, str):
            if self.rights not in {"read", "act"}:
                raise ConfigurationError(f"authorize: {self.rights!r:.80} is not a right. {_WRITE}")
            return
        if not isinstance(self.rights, Iterable):
            raise ConfigurationError(f"authorize: {self.rights!r:.80} are no rights. {_WRITE}")
        if unknown := sorted({str(one) for one in self.rights} - OPERATIONS):
            raise ConfigurationError(f"authorize: there is no operation {unknown[0]!r:.80}. {_WRITE}")

    def may(self, operation: str) -> bool:
        """Whether this operation is allowed."""
        if operation not in OPERATIONS:
            raise ValueError(operation)
        return self.rights == "act" or (not isinstance(self.rights, str) and operation in self.rights)

    @property
    def reads_only(self) -> bool:
        """Whether nothing at all may be done."""
        return not any(map(self.may, OPERATIONS))


_LONGEST = 200
_NAMES = ", ".join(repr(name) for name in sorted(OPERATIONS))
_WRITE = f"Return None, 'read', 'act', a set of {_NAMES}, or Caller(name, one of these)."

Authorize = Callable[[Any], "Caller | Rights | Awaitable[Caller | Rights | None] | None"]
"""`authorize(request)`: who asks, or what they may do; None refuses."""


@dataclass(frozen=True, slots=True)
class AccessPolicy:
    """What a request has to pass. The default lets none through."""

    authorize: Authorize | None = None
    login: TokenLogin | None = None
    """The token that callers need."""
    hosts: frozenset[str] | None = None
    """The names that the page answers to; None: all."""
    trusted_origins: Collection[str] = ()
    """Further origins from which changes may come."""
    direct: bool = False
    """Refuse what a proxy passed on: behind it every caller would be local."""


def caller_of(answer: object) -> Caller | None:
    """The answer of an `authorize`. An answer that means nothing is an error, and so the request is refused."""
    if answer is None or isinstance(answer, Caller):
        return answer
    if isinstance(answer, str | set | frozenset | list | tuple):
        return Caller("", answer)
    raise ConfigurationError(f"authorize: {answer!r:.80} means nothing. {_WRITE}")


def host_of(header: str) -> str:
    """The name in a Host header, without its port."""
    name = header.strip().lower()
    if name.startswith("["):
        return name.partition("]")[0] + "]"
    return name.partition(":")[0]


LOOPBACK = frozenset({"localhost", "127.0.0.1", "[::1]"})
FORWARDED = ("forwarded", "x-forwarded-for", "x-forwarded-host", "x-real-ip", "via")
"""Headers of proxies. Behind one, every caller seems to be local."""


def foreign_host(request: Request, hosts: frozenset[str] | None) -> str:
    """Why the request is not for this page; '' if it is. `hosts`: the names that it answers to, None for all."""
    if hosts is None:
        return ""
    given = request.headers.getlist("host")
    if len(given) == 1 and host_of(given[0]) in hosts:
        return ""
    shown = given[0] if given else ""
    return f"This page does not answer to the name {shown!r:.100}. Start `tenure web` with --allow-host for that name."


def proxied(request: Request) -> bool:
    """Whether a proxy passed the request on."""
    return any(name in request.headers for name in FORWARDED)


def cross_site(request: Request, trusted: Collection[str]) -> str:
    """Why a change is refused because of where it comes from; '' if it comes from the page itself.

    Browsers say where a request comes from, and pages cannot lie about it: `Sec-Fetch-Site`, which they send over https
    and to loopback, else `Origin`. A request with neither comes from no browser that we know. It is allowed only with a
    bearer token, which no browser sends by itself.
    """
    origin, site = request.headers.get("origin"), request.headers.get("sec-fetch-site")
    if origin is not None and origin in trusted:
        return ""
    if site is not None:
        return "" if site == "same-origin" else f"The request comes from another site ({site:.40})."
    if origin is not None:
        own = f"{request.url.scheme}://{request.headers.get('host', '')}"
        return "" if origin.lower() == own.lower() else f"The request comes from {origin:.100}, not from {own:.100}."
    if request.headers.get("authorization", "").lower().startswith("bearer "):
        return ""
    return "The request does not say where it comes from (neither Sec-Fetch-Site nor Origin)."
