"""Check-ins: runs tell an outside monitor that they began and how they ended, so that it notices what does not come.

Each style is a pure function from one ping to the request that the service documents.
"""

from __future__ import annotations

import hashlib
import json
import re
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import Literal
from urllib.parse import parse_qsl, quote, urlencode, urlsplit, urlunsplit

from tenure.alerts.http import HttpRequest, checked_timeout, checked_url, send, shown_url
from tenure.core.alerts import NAMESPACE
from tenure.core.patterns import is_pattern, matches
from tenure.errors import ConfigurationError
from tenure.util.durations import Duration, positive
from tenure.util.names import named
from tenure.util.plurals import a_type

Style = Literal["healthchecks", "sentry", "cronitor", "snitch", "plain"]

MOST_TEXT = 1000
"""How many characters of an error are sent."""
IN_URL = 200
"""The same where it is part of the URL."""
JOB = "{job}"
"""Stands for the job in the URL of a check-in."""
DIGEST = 8
"""Hex digits that tell apart jobs whose names monitors cannot write."""
LEAST_EVERY = 10.0
"""The least time in seconds between two pings of the planner."""


class PingState(Enum):
    """What a ping says of a run."""

    START = "start"
    OK = "ok"
    FAIL = "fail"
    """It failed for good, was lost, or was missed."""
    OTHER = "other"
    """The attempt ended otherwise: it is tried again, looks again later, or was cancelled."""


@dataclass(frozen=True, slots=True)
class RunPing:
    """What a monitor is told of one attempt of a run."""

    state: PingState
    application: str
    job: str
    key: str
    attempt: int
    due: datetime
    label: str = ""
    """The label of the node."""
    text: str = ""
    """Why it failed."""
    duration: float | None = None
    """In seconds."""

    @property
    def id(self) -> uuid.UUID:
        """The same for the start and the end of an attempt, whichever node tells it."""
        return uuid.uuid5(NAMESPACE, f"{self.application}\n{self.job}\n{self.key}\n{self.attempt}")


class CheckIn:
    """Runs of some jobs check in with a monitor: healthchecks.io, Sentry Crons, Cronitor, Dead Man's Snitch, or any
    address that expects a request after each success (`plain`)."""

    def __init__(
        self,
        url: str,
        *,
        style: Style,
        jobs: str = "*",
        environment: str = "",
        timeout: Duration = "5s",
        name: str | None = None,
    ) -> None:
        """`{job}` in the URL stands for the job: for its name in letters, digits, '-' and '_'. Without it the URL is of
        one job, which `jobs` names. `environment` is what Sentry and Cronitor call so."""
        if style not in STYLES:
            raise ConfigurationError(f"CheckIn: style={style!r} is not one of {', '.join(map(repr, STYLES))}.")
        self.name = named(style if name is None else name, "name of the check-in")
        if not isinstance(url, str):
            raise ConfigurationError(f"{self.name}: the URL is {a_type(url)}. Write 'https://…'.")
        checked_url(url.replace(JOB, "job"), f"{self.name}: url")
        self.style, self.jobs, self.environment = style, named(jobs, "jobs"), environment
        if JOB not in url and is_pattern(jobs):
            raise ConfigurationError(
                f"{self.name}: the URL has no {JOB}, so it is the monitor of one job. Write jobs='nightly', or put "
                f"{JOB} where the name of the job belongs."
            )
        self._url = url
        self._timeout = checked_timeout(timeout, f"{self.name}: timeout")

    def __repr__(self) -> str:
        return f"<CheckIn {self.name!r} of {self.jobs!r} with {shown_url(self._url)}>"

    def wants(self, job: str) -> bool:
        """Whether it is about this job."""
        return matches(self.jobs, job)

    def request(self, ping: RunPing) -> HttpRequest | None:
        """The request that says this; None if the service has no word for it."""
        url = self._url.replace(JOB, slug(ping.job))
        return STYLES[self.style](url, ping, self.environment)

    def send(self, ping: RunPing) -> None:
        """Say it. Raises `NotAccepted`."""
        request = self.request(ping)
        if request is not None:
            send(request, self._timeout)


class PlannerPing:
    """The node that plans sends a request again and again: if it stops, an outside monitor says so, even if every
    worker and the database are gone."""

    def __init__(
        self, url: str, *, every: Duration = "1m", timeout: Duration = "5s", name: str = "planner ping"
    ) -> None:
        self.name = named(name, "name of the planner ping")
        self._url = checked_url(url, f"{name}: url")
        self.every = positive(every, f"{name}: every")
        if self.every < LEAST_EVERY:
            raise ConfigurationError(f"{name}: every={every!r} is too often. Write {LEAST_EVERY:g}s or more.")
        self._timeout = checked_timeout(timeout, f"{name}: timeout")

    def __repr__(self) -> str:
        return f"<PlannerPing {self.name!r} to {shown_url(self._url)}>"

    def send(self, _: object = None) -> None:
        """Say that a node plans. Raises `NotAccepted`."""
        send(HttpRequest(self._url, method="GET"), self._timeout)


def slug(job: str) -> str:
    """The name of a job as monitors write it: 'nightly' is itself, and 'report:EU' is 'report-eu-0f372c6e'. No two jobs
    have the same: a name that had to be changed is told apart by a digest."""
    written = re.sub(r"[^a-z0-9_]+", "-", job.lower()).strip("-") or "job"
    return written if written == job else f"{written}-{hashlib.sha256(job.encode()).hexdigest()[:DIGEST]}"


# Styles


def _healthchecks(url: str, ping: RunPing, _environment: str) -> HttpRequest:
    """`{url}/start`, `{url}`, `{url}/fail`; `{url}/log` is only recorded. `rid` pairs the start and the end."""
    ways = {PingState.START: "/start", PingState.OK: "", PingState.FAIL: "/fail", PingState.OTHER: "/log"}
    body = ping.text[:MOST_TEXT].encode() if ping.text else b""
    headers = {"Content-Type": "text/plain; charset=utf-8"}
    return HttpRequest(_with(url, {"rid": str(ping.id)}, ways[ping.state]), body, headers)


def _sentry(url: str, ping: RunPing, environment: str) -> HttpRequest:
    """A check-in as JSON. An attempt that is tried again is an error: Sentry would wait for it until it is too late."""
    status = {PingState.START: "in_progress", PingState.OK: "ok"}.get(ping.state, "error")
    said: dict[str, object] = {"check_in_id": ping.id.hex, "status": status}
    if ping.duration is not None:
        said["duration"] = round(ping.duration, 3)
    if environment:
        said["environment"] = environment
    return HttpRequest(url, json.dumps(said).encode(), {"Content-Type": "application/json"})


def _cronitor(url: str, ping: RunPing, environment: str) -> HttpRequest | None:
    states = {PingState.START: "run", PingState.OK: "complete", PingState.FAIL: "fail"}
    if ping.state not in states:
        return None
    said = {"state": states[ping.state], "series": str(ping.id), "host": ping.label, "env": environment}
    said["message"] = ping.text[:IN_URL]
    if ping.duration is not None:
        said["metric"] = f"duration:{ping.duration:.3f}"
    return HttpRequest(_with(url, {key: value for key, value in said.items() if value}), method="GET")


def _snitch(url: str, ping: RunPing, _environment: str) -> HttpRequest | None:
    """Dead Man's Snitch hears of ends alone: `s` is 0 for a success."""
    if ping.state not in {PingState.OK, PingState.FAIL}:
        return None
    said = {"s": "0" if ping.state is PingState.OK else "1", "m": ping.text[:IN_URL]}
    return HttpRequest(_with(url, {key: value for key, value in said.items() if value}), method="GET")


def _plain(url: str, ping: RunPing, _environment: str) -> HttpRequest | None:
    return HttpRequest(url, method="GET") if ping.state is PingState.OK else None


STYLES: Mapping[str, Callable[[str, RunPing, str], HttpRequest | None]] = {
    "healthchecks": _healthchecks,
    "sentry": _sentry,
    "cronitor": _cronitor,
    "snitch": _snitch,
    "plain": _plain,
}


def _with(url: str, more: Mapping[str, str], way: str = "") -> str:
    """The URL with more in its path and its query."""
    parts = urlsplit(url)
    query = urlencode([*parse_qsl(parts.query, keep_blank_values=True), *more.items()], quote_via=quote)
    return urlunsplit((parts.scheme, parts.netloc, parts.path.rstrip("/") + way, query, ""))
