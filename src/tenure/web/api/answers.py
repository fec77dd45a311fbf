"""How answers in JSON are written: with a tag, with the address of what comes next, or as a problem."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any
from urllib.parse import quote, urlencode

from starlette.responses import Response

from tenure.core.arguments import plain
from tenure.web.page_request import PageRequest, Refused, whole

BASE = "/api/v1"
MOST = 1000
"""Rows of one answer."""
ROWS = 100
"""The same, where nothing is asked for."""


def problem(status: int, title: str, text: str, headers: Mapping[str, str] | None = None) -> Response:
    """An error."""
    body = {"type": "about:blank", "title": title, "status": status, "detail": text}
    if status == HTTPStatus.UNAUTHORIZED:
        headers = {"www-authenticate": "Bearer"}
    return Response(json.dumps(body), status, headers, media_type="application/problem+json")


def found(request: PageRequest, value: Any, *, after: str | None = None) -> Response:
    """What was read. `after` is where the next page begins."""
    body = json.dumps(value, ensure_ascii=True).encode()
    tag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'
    headers = {"etag": tag, "cache-control": "private, no-cache"}
    if after is not None:
        headers["link"] = f'<{_further(request, after)}>; rel="next"'
    given = request.http.headers.get("if-none-match", "")
    if tag in {one.strip().removeprefix("W/") for one in given.split(",")}:
        return Response(status_code=304, headers=headers)
    return Response(body, headers=headers, media_type="application/json")


def done(value: Any) -> Response:
    """What a change has led to."""
    return Response(json.dumps(value, ensure_ascii=True), media_type="application/json")


def hidden(request: PageRequest, view: dict[str, Any], job: str, kwargs: dict[str, Any] | None) -> dict[str, Any]:
    """Arguments are shown only where they are asked for, and as far as `redact` lets them."""
    asked = shows_arguments(request)
    return {**view, "kwargs": plain(dict(request.site.shown(job, kwargs))) if asked and kwargs is not None else None}


def shows_arguments(request: PageRequest) -> bool:
    """Whether arguments are asked for."""
    return chosen(request, "arguments", ("hidden", "shown")) == "shown"


def flat(fields: Mapping[str, Any]) -> dict[str, Any]:
    """A dataclass's fields as plain JSON."""
    return {word: plain(value) for word, value in fields.items()}


def limit(request: PageRequest) -> int:
    """How many rows are asked for."""
    given = whole(request.asked("limit", str(ROWS)), "limit")
    if not 1 <= given <= MOST:
        raise Refused(400, "Too many", f"limit: {given} is not from 1 to {MOST:,}.")
    return given


def chosen(request: PageRequest, name: str, words: tuple[str, ...]) -> str:
    """One of these words; the first, if nothing is asked for."""
    given = request.asked(name, words[0])
    if given not in words:
        raise Refused(400, "No such word", f"{name}: {given[:40]!r} is not known. Write {' or '.join(words)}.")
    return given


def _further(request: PageRequest, after: str) -> str:
    """The address of the next page of the same question."""
    words = [(word, value) for word, value in request.http.query_params.multi_items() if word != "after"]
    query = urlencode([*words, ("after", after)], quote_via=quote)
    path = request.http.url.path
    return f"{quote(path)}?{query}"
