"""One request to the page: who asks, what they sent, and how it is refused."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, quote

from starlette.requests import Request
from starlette.responses import Response

from tenure.web.access import Caller

if TYPE_CHECKING:
    from tenure.web.site import Site

NUMBERS = 2**62
"""The largest number that an address may carry."""
FORM = 256 * 1024
"""Bytes of a form, or of a request in JSON."""
FIELDS = 20


class Refused(Exception):
    """A request that is not allowed, or that makes no sense."""

    def __init__(self, status: int, title: str, text: str) -> None:
        super().__init__(text)
        self.status, self.title, self.text = status, title, text


@dataclass(slots=True)
class PageRequest:
    """One request that may see the page, and what its handler needs."""

    http: Request
    caller: Caller
    site: Site
    form: dict[str, str] = field(default_factory=dict)
    fields: dict[str, Any] = field(default_factory=dict)
    """The same of a request in JSON."""

    def need(self, operation: str) -> None:
        """Refuse the request unless its caller may do this."""
        if not self.caller.may(operation):
            raise Refused(403, "Not allowed", f"You may not do this here: {operation}.")

    def asked(self, name: str, default: str = "") -> str:
        """A value of the address."""
        return self.http.query_params.get(name, default)

    def number(self, name: str, default: int = 0) -> int:
        """A number of the address."""
        return whole(self.asked(name) or str(default), name)

    @property
    def root(self) -> str:
        """Where the page is mounted."""
        return root_of(self.http)

    def show(self, template: str, status: int = 200, **given: Any) -> Response:
        """Answer with a page."""
        return self.site.show(self, self.http, template, status, **given)

    @property
    def by(self) -> str:
        """Who is written into the history."""
        return self.caller.name or "web page"


Handler = Callable[[PageRequest], Awaitable[Response]]
"""What answers a request that may see the page."""


def root_of(request: Request) -> str:
    """Where the page is mounted, as it stands in an address."""
    root: str = request.scope.get("root_path", "")
    return quote(root.rstrip("/"))


def whole(text: str, name: str) -> int:
    """A number, 0 or more."""
    if not (text.isascii() and text.isdigit() and int(text[:20]) <= NUMBERS):
        raise Refused(400, "No such number", f"{name}: {text[:40]!r} is not a number.")
    return int(text[:20])


async def form_of(request: Request) -> dict[str, str]:
    """The fields of a form. Small, and in the one form that our own pages send."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/x-www-form-urlencoded":
        raise Refused(415, "Not a form", "Send application/x-www-form-urlencoded.")
    body = await body_of(request)
    try:
        return dict(parse_qsl(body.decode(), keep_blank_values=True, max_num_fields=FIELDS, errors="strict"))
    except ValueError:
        raise Refused(400, "Not a form", "The form cannot be read.") from None


async def body_of(request: Request) -> bytes:
    """What was sent, if it is not too much."""
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > FORM:
            raise Refused(413, "Too large", f"A request has at most {FORM:,} bytes.")
    return body
