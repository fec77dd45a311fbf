"""Logging in with the token of `tenure web`. It is given once; from then on a cookie stands for it, which only this
token could have made.

The token itself is never stored in a browser and never stands in a URL. Programs send it as `Authorization: Bearer …`.
"""

from __future__ import annotations

import hashlib
import hmac
import threading

from starlette.requests import Request
from starlette.responses import Response

from tenure.errors import ConfigurationError
from tenure.util.clock import boottime, walltime

SHORTEST = 16
"""Characters of a token."""
LASTS = 12 * 3600
"""Seconds for which a log-in counts."""
TRIES, PER = 10, 60.0
"""After so many wrong tokens in so many seconds a further wrong one is told to wait. The right one always counts: else
anyone could lock out everyone. What keeps the token from being guessed is its length."""


class TokenLogin:
    """Lets callers in who know the token."""

    def __init__(self, token: str) -> None:
        if len(token) < SHORTEST or not token.isprintable() or " " in token:
            raise ConfigurationError(
                f"token: it has {len(token)} characters; write at least {SHORTEST}, without spaces. "
                'python3 -c "import secrets; print(secrets.token_urlsafe(32))" makes one.'
            )
        self._token = token.encode()
        self._wrong: list[float] = []
        self._mutex = threading.Lock()

    def is_logged_in(self, request: Request) -> bool:
        """Whether the request carries the cookie of an earlier log-in, or the token itself."""
        scheme, _, given = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer" and self.is_token(given.strip()):
            return True  # another may be for a proxy in front
        expires, _, sign = request.cookies.get(_cookie(request), "").partition(".")
        if not (expires.isascii() and expires.isdigit() and len(expires) <= 12):  # noqa: PLR2004 - seconds since 1970
            return False
        return hmac.compare_digest(sign.encode(), self._sign(expires)) and int(expires) > walltime().timestamp()

    def is_token(self, given: str) -> bool:
        """Whether this is the token."""
        return hmac.compare_digest(hashlib.sha256(given.encode()).digest(), hashlib.sha256(self._token).digest())

    def note_wrong(self) -> bool:
        """Note that a wrong token came. Returns whether too many had come before."""
        with self._mutex:
            since = boottime() - PER
            self._wrong = [at for at in self._wrong if at > since]
            if len(self._wrong) >= TRIES:
                return True
            self._wrong.append(boottime())
            return False

    def log_in(self, request: Request, answer: Response) -> None:
        """Give the browser its cookie."""
        expires = str(int(walltime().timestamp()) + LASTS)
        answer.set_cookie(
            _cookie(request),
            f"{expires}.{self._sign(expires).decode()}",
            max_age=LASTS,
            path="/",
            secure=request.url.scheme == "https",
            httponly=True,
            samesite="strict",
        )

    def log_out(self, request: Request, answer: Response) -> None:
        """Take the cookie away."""
        secure = request.url.scheme == "https"
        answer.delete_cookie(_cookie(request), path="/", secure=secure, httponly=True, samesite="strict")

    def _sign(self, expires: str) -> bytes:
        return hmac.new(self._token, b"tenure web until " + expires.encode(), "sha256").hexdigest().encode()


def _cookie(request: Request) -> str:
    """Over https the name makes browsers insist on Secure, and on this very host; over http they would refuse it.

    Cookies do not know ports: two pages on one host have cookies of their own by the port in the name.
    """
    port = request.url.port or (443 if request.url.scheme == "https" else 80)
    return f"__Host-tenure-{port}" if request.url.scheme == "https" else f"tenure-{port}"
