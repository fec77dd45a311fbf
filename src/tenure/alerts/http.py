"""One HTTP request, with a timeout and without redirects. No error quotes the URL, which may contain a secret."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from tenure.errors import ConfigurationError
from tenure.util.durations import Duration, positive
from tenure.util.plurals import a_type
from tenure.util.version import __version__

if TYPE_CHECKING:
    from urllib.request import OpenerDirector

TIMEOUT, LONGEST_TIMEOUT = 5.0, 15.0
"""Seconds for one try: by default, and at most. Three tries must be over before a claim of 60 s lapses."""


class NotAccepted(Exception):
    """A sink did not accept a message. The text is stored and shown, so it must not contain a secret."""


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """A request. Only its method is shown."""

    url: str = field(repr=False)
    body: bytes | None = field(default=None, repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    method: str = "POST"


@functools.cache
def _opener() -> OpenerDirector:
    """Imported when something is sent: most programs that import tenure never do."""
    from urllib.request import HTTPRedirectHandler, build_opener

    class NoRedirects(HTTPRedirectHandler):
        """A redirected POST would become a GET without its body."""

        def redirect_request(self, *_: object) -> None:
            return None

    return build_opener(NoRedirects)


def send(request: HttpRequest, timeout: float) -> None:
    """Send it. Raises `NotAccepted` unless the answer is 2xx."""
    import http.client
    import urllib.error
    import urllib.request

    headers = {"User-Agent": f"tenure/{__version__}", **request.headers}
    made = urllib.request.Request(  # noqa: S310 - `checked_url` has seen it
        request.url, request.body, headers, method=request.method
    )
    try:
        with _opener().open(made, timeout=timeout):
            return
    except urllib.error.HTTPError as error:
        error.close()
        raise NotAccepted(f"the answer is HTTP {error.code}") from None
    except TimeoutError:
        raise NotAccepted(f"no answer within {timeout:g} s") from None
    except urllib.error.URLError as error:
        raise NotAccepted(_reason(error.reason, timeout)) from None
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise NotAccepted(_reason(error, timeout)) from None


def _reason(error: object, timeout: float) -> str:
    if isinstance(error, TimeoutError):
        return f"no answer within {timeout:g} s"
    text = error.strerror if isinstance(error, OSError) else None
    return text or f"the request failed: {type(error).__name__}"


def checked_url(url: object, what: str) -> str:
    """A URL to send to. The error does not quote it: it may contain a secret."""
    if not isinstance(url, str):
        raise ConfigurationError(f"{what}: the URL is {a_type(url)}. Write 'https://…'.")
    if not url.isprintable() or " " in url or not url.isascii():
        raise ConfigurationError(f"{what}: the URL has spaces or characters that no URL has. Percent-encode them.")
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError:
        raise ConfigurationError(f"{what}: the URL cannot be parsed. Write 'https://host/path'.") from None
    if parts.scheme not in {"http", "https"} or not host:
        raise ConfigurationError(f"{what}: the URL has the scheme {parts.scheme!r}. Write 'https://host/path'.")
    if parts.username is not None or parts.password is not None:
        raise ConfigurationError(
            f"{what}: the URL has a user name before the '@'. Write headers={{'Authorization': …}} instead."
        )
    return url


def shown_url(url: str) -> str:
    """The URL without what may be secret: 'https://host/…'."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.hostname}/…"


def checked_timeout(value: Duration, what: str) -> float:
    """How long one try may take."""
    timeout = positive(value, what)
    if timeout > LONGEST_TIMEOUT:
        raise ConfigurationError(f"{what}: {value!r} is too long. Write {LONGEST_TIMEOUT:g}s or less.")
    return timeout
