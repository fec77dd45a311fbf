"""What may be changed: the operations of the page, each as a POST of a JSON object.

Each handler asks for its right first. A field that an operation does not have is refused: a misspelt `until` would
otherwise pause for ever.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from tenure.core.arguments import decode
from tenure.core.backfills import DEFAULT_INCLUDE
from tenure.errors import UnreadableArguments
from tenure.views import BackfillView, JobView, RunView
from tenure.web.api.answers import BASE, done, hidden
from tenure.web.operations import carry_out
from tenure.web.page_request import NUMBERS, PageRequest, Refused, body_of
from tenure.web.times import until_of


@dataclass(frozen=True, slots=True)
class OperationFields:
    """The object of a request."""

    given: dict[str, Any]

    def text(self, name: str, default: str | None = None) -> str:
        """A text, which may be left out if there is a default."""
        value = self.given.get(name, default)
        if value is None and name not in self.given:
            raise Refused(400, "Something is missing", f"{name}: it is missing. Write a text.")
        if not isinstance(value, str):
            raise Refused(400, "Not a text", f"{name}: {_json(value)} is not a text. {_LEFT_OUT}")
        return value

    def number(self, name: str) -> int:
        """A number, such as that of a run."""
        value = self.given.get(name)
        if isinstance(value, float) and value.is_integer():
            value = int(value)  # to JSON, 7.0 is the integer 7
        if type(value) is not int or not 0 <= value <= NUMBERS:
            raise Refused(400, "No such number", f"{name}: {_json(value)} is not a number. Write a whole one.")
        return value

    def number_or_none(self, name: str) -> int | None:
        """A number, which may be left out or null."""
        return None if self.given.get(name) is None else self.number(name)

    def words(self, name: str, default: tuple[str, ...]) -> tuple[str, ...]:
        """A list of texts, which may be left out."""
        value = self.given.get(name, list(default))
        if not isinstance(value, list) or not all(isinstance(word, str) for word in value):
            raise Refused(400, "Not a list", f"{name}: {_json(value)} is not a list of texts. {_LEFT_OUT}")
        return tuple(value)

    def flag(self, name: str, *, default: bool) -> bool:
        """True or false."""
        value = self.given.get(name, default)
        if not isinstance(value, bool):
            raise Refused(400, "Neither true nor false", f"{name}: {_json(value)} is not true or false. {_LEFT_OUT}")
        return value

    def arguments(self, name: str) -> dict[str, Any] | None:
        """The arguments of a body, with tags as tenure writes them; None if they are left out."""
        if name not in self.given:
            return None
        value = self.given[name]
        if not isinstance(value, dict):
            raise Refused(400, "Not an object", f"{name}: {_json(value)} is not an object. {_LEFT_OUT}")
        try:
            return decode(json.dumps(value))
        except UnreadableArguments as error:
            raise Refused(400, "Not readable", f"{name}: {error}.") from None


@dataclass(frozen=True, slots=True)
class ApiOperation:
    """An operation, the fields it has, and what carries it out."""

    operation: str
    fields: tuple[str, ...]
    handler: Callable[[PageRequest, OperationFields], Awaitable[Any]]

    async def __call__(self, request: PageRequest) -> Response:
        """Answer a request."""
        request.need(self.operation)
        fields = OperationFields(request.fields)
        if unknown := sorted(fields.given.keys() - set(self.fields)):
            words = ", ".join(self.fields)
            raise Refused(400, "No such field", f"{self.operation} has no field {unknown[0]!r:.80}. It has: {words}.")
        return done(await self.handler(request, fields))


async def _run_now(request: PageRequest, fields: OperationFields) -> Any:
    name, kwargs, why = fields.text("job"), fields.arguments("kwargs"), fields.text("why", "")
    key = fields.text("key") if "key" in fields.given else None
    if kwargs is not None:
        request.need("run-now-arguments")
    scheduler = request.site.scheduler
    run = await carry_out(request, lambda: scheduler.run_now(name, kwargs=kwargs, key=key, by=request.by, why=why))
    return _shown_run(request, run)


async def _pause(request: PageRequest, fields: OperationFields) -> Any:
    name, why, until = fields.text("job"), fields.text("why"), until_of(fields.text("until", "").strip())
    if not why.strip():
        raise Refused(400, "Why?", "why: say why the job is paused: the next person on call will ask.")
    scheduler = request.site.scheduler
    job = await carry_out(request, lambda: scheduler.pause(name, why=why, until=until, by=request.by))
    return _shown_job(request, job)


def _on_job(verb: str) -> Callable[[PageRequest, OperationFields], Awaitable[Any]]:
    """`resume`, `remove`, `restore` and `reset` take the same."""

    async def change(request: PageRequest, fields: OperationFields) -> Any:
        name, why = fields.text("job"), fields.text("why", "")
        method: Callable[..., JobView] = getattr(request.site.scheduler, verb)
        return _shown_job(request, await carry_out(request, lambda: method(name, why=why, by=request.by)))

    return change


async def _cancel(request: PageRequest, fields: OperationFields) -> Any:
    number, why = fields.number("run"), fields.text("why", "")
    scheduler = request.site.scheduler
    return _shown_run(request, await carry_out(request, lambda: scheduler.cancel(number, why=why, by=request.by)))


async def _retry(request: PageRequest, fields: OperationFields) -> Any:
    number, why = fields.number("run"), fields.text("why", "")
    scheduler = request.site.scheduler
    return _shown_run(request, await carry_out(request, lambda: scheduler.retry(number, why=why, by=request.by)))


async def _backfill(request: PageRequest, fields: OperationFields) -> Any:
    name, since, until = fields.text("job"), fields.text("since"), fields.text("until")
    dry_run, even_forgotten = fields.flag("dry_run", default=True), fields.flag("even_forgotten", default=False)
    include, at_once = fields.words("include", DEFAULT_INCLUDE), fields.number_or_none("at_once")
    why, scheduler = fields.text("why", ""), request.site.scheduler

    def list_or_run() -> dict[str, Any]:
        more: dict[str, Any] = {"include": include, "at_once": at_once, "even_forgotten": even_forgotten}
        more |= {"why": why, "by": request.by}
        if dry_run:
            due = scheduler.backfill(name, since, until, dry_run=True, **more)
            return {"due": [at.isoformat() for at in due], "runs": [], "backfill": None}
        made = scheduler.backfill(name, since, until, dry_run=False, **more)
        return {
            "due": [run.scheduled_for.isoformat() for run in made],
            "runs": [_shown_run(request, run) for run in made],
            "backfill": scheduler.find_backfill(made.number).as_dict() if made.number else None,
        }

    return {"job": name, "dry_run": dry_run, **await carry_out(request, list_or_run)}


def _on_backfill(verb: str) -> Callable[[PageRequest, OperationFields], Awaitable[Any]]:
    """`pause_backfill`, `resume_backfill` and `cancel_backfill` take the same."""

    async def steer(request: PageRequest, fields: OperationFields) -> Any:
        number, why = fields.number("backfill"), fields.text("why", "")
        method: Callable[..., BackfillView] = getattr(request.site.scheduler, verb)
        return (await carry_out(request, lambda: method(number, why=why, by=request.by))).as_dict()

    return steer


async def _resign(request: PageRequest, fields: OperationFields) -> Any:
    why, scheduler = fields.text("why", ""), request.site.scheduler
    return {"term": await carry_out(request, lambda: scheduler.ask_planner_to_resign(by=request.by, why=why))}


CHANGES = {
    f"{BASE}/{change.operation}": change
    for change in (
        ApiOperation("run-now", ("job", "kwargs", "key", "why"), _run_now),
        ApiOperation("pause", ("job", "why", "until"), _pause),
        ApiOperation("resume", ("job", "why"), _on_job("resume")),
        ApiOperation("remove", ("job", "why"), _on_job("remove")),
        ApiOperation("restore", ("job", "why"), _on_job("restore")),
        ApiOperation("reset", ("job", "why"), _on_job("reset")),
        ApiOperation("cancel", ("run", "why"), _cancel),
        ApiOperation("retry", ("run", "why"), _retry),
        ApiOperation(
            "backfill", ("job", "since", "until", "dry_run", "include", "at_once", "even_forgotten", "why"), _backfill
        ),
        ApiOperation("pause-backfill", ("backfill", "why"), _on_backfill("pause_backfill")),
        ApiOperation("resume-backfill", ("backfill", "why"), _on_backfill("resume_backfill")),
        ApiOperation("cancel-backfill", ("backfill", "why"), _on_backfill("cancel_backfill")),
        ApiOperation("resign", ("why",), _resign),
    )
}
"""What each address changes."""


def _shown_job(request: PageRequest, job: JobView) -> dict[str, Any]:
    return hidden(request, job.as_dict(), job.name, job.kwargs)


def _shown_run(request: PageRequest, run: RunView) -> dict[str, Any]:
    return hidden(request, run.as_dict(), run.job, run.kwargs)


async def json_of(request: Request) -> dict[str, Any]:
    """The object of a change."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise Refused(415, "Not JSON", "Send a JSON object, as application/json.")
    body = await body_of(request)
    try:
        found = json.loads(body, parse_constant=_refuse_constant)
        json.dumps(found, ensure_ascii=False).encode()  # half a character cannot be stored
    except (ValueError, RecursionError):
        raise Refused(400, "Not JSON", "The request cannot be read as JSON in UTF-8.") from None
    if not isinstance(found, dict):
        raise Refused(400, "Not an object", f'{_json(found)} is not an object. Write one, such as {{"job": "x"}}.')
    return found


_LEFT_OUT = "Write one, or leave it out if it may be."


def _json(value: object) -> str:
    """What was sent, as it was sent."""
    return f"{json.dumps(value):.80}"


def _refuse_constant(word: str) -> Any:
    raise ValueError(word)
