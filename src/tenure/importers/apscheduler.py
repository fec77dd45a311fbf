"""Imports the job stores of APScheduler 3 on SQLite and PostgreSQL.

Their rows are pickles. They are read without importing or calling anything that they name.
"""

from __future__ import annotations

import functools
import io
import keyword
import pickle
import re
import sqlite3
from collections.abc import Callable, Mapping
from contextlib import closing
from datetime import UTC, date, datetime, time, timedelta, timezone, tzinfo
from typing import TYPE_CHECKING, Any, ClassVar
from urllib.parse import quote

from tenure.errors import ConfigurationError, StoreUnavailable
from tenure.ext.apscheduler.fields import NAMES, as_trigger
from tenure.ext.apscheduler.fields import read as read_fields
from tenure.ext.apscheduler.triggers import AndTrigger, BaseTrigger, CalendarIntervalTrigger, CronTrigger
from tenure.importers.found import Found, Imported, Left, Names, plain
from tenure.triggers import Trigger, at, every, zone
from tenure.triggers.combined import Union
from tenure.util.clock import walltime
from tenure.util.urls import PostgresURL, SqliteURL, parse

if TYPE_CHECKING:
    import psycopg

DIFFERENCES = (
    (
        "nothing is written back to the old store: stop the old scheduler before a node of this one starts, or both "
        "run. To keep your code as it is, import nothing: see tenure.ext.apscheduler."
    ),
    (
        "misfire_grace_time was 1 s by default; here a due time that is more than 60 s late is missed, and the latest "
        "missed one runs late (grace=, missed=)."
    ),
    "executors are not imported: write queue= on a job, and queues= on the nodes that serve it.",
)
MAX_BYTES = 1_000_000
MAX_PARTS = 10_000
"""No application writes jobs with more values than this."""
_WEEKDAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_PLACES = ("1st", "2nd", "3rd", "4th", "5th", "last")
_DEFAULT_GRACE = 1


def read(url: str, *, table: str = "apscheduler_jobs") -> Imported:
    """All jobs of a store."""
    names, found, left = Names(), list[Found](), list[Left]()
    for id_, state in _rows(url, table):
        try:
            found.append(_job(names, load(state)))
        except ConfigurationError as error:
            left.append(Left(str(id_), str(error)))
        except Exception as error:  # rows are not trusted: whatever one of them causes, read the others
            left.append(Left(str(id_), _unreadable(error)))
    return Imported(f"the table {table} of {parse(url)}", tuple(found), tuple(left), DIFFERENCES)


def load(state: object) -> dict[str, Any]:
    """The attributes of a pickled job.

    Anything but dates, zones and plain data becomes a `Stand`, which only has a name.
    """
    if not isinstance(state, bytes | memoryview) or len(state) > MAX_BYTES:
        raise ConfigurationError(f"its row is not a pickle of at most {MAX_BYTES} bytes.")
    try:
        loaded = _Reader(io.BytesIO(state)).load()
    except Exception as error:  # whatever a torn or hostile row causes
        raise ConfigurationError(_unreadable(error)) from None
    if not isinstance(loaded, dict) or not {"trigger", "func", "id"} <= loaded.keys():
        raise ConfigurationError("this is not a job of APScheduler 3.")
    _refuse_large(loaded)
    return loaded


def _unreadable(error: Exception) -> str:
    return f"its row cannot be read ({type(error).__name__}: {str(error)[:200]})."


def _refuse_large(loaded: object) -> None:
    """Refuse data that is far larger than its pickle: a few tuples, each twice in the next, would fill any memory."""
    parts, seen, length = [loaded], 0, 0
    while parts:
        seen += 1
        match part := parts.pop():
            case dict():
                parts += [*part.keys(), *part.values()]
            case list() | tuple() | set() | frozenset():
                parts += part
            case Stand():
                parts.append(part.words)
            case str() | bytes():
                length += len(part)
            case int():
                length += part.bit_length() // 3
        if seen > MAX_PARTS or length > MAX_BYTES:
            raise ConfigurationError(f"it has more than {MAX_PARTS} values or {MAX_BYTES} characters.")


class Stand:
    """Stands for an object that is never created."""

    module, name = "", ""

    def __init__(self, *args: object, **kwargs: object) -> None:
        self.words: dict[str, Any] = {"args": args, **kwargs}

    def __setstate__(self, state: object) -> None:
        parts = state if isinstance(state, tuple) else (state,)
        self.words = {key: value for part in parts if isinstance(part, dict) for key, value in part.items()}

    def __call__(self, *_args: object) -> Stand:
        return self

    def __repr__(self) -> str:
        return f"<{self.module}.{self.name}>"


class _Tuple(tuple[Any, ...]):
    """A tuple that refuses to hash tuples of tuples: if each is twice in the next, hashing would take for ever."""

    __slots__ = ()

    def __hash__(self) -> int:
        if any(isinstance(item, tuple) for item in self):
            raise TypeError("a key that is a tuple of tuples")
        return super().__hash__()


class _Reader(pickle._Unpickler):  # noqa: SLF001 - the one written in Python: it lets us choose the class of tuples
    stack: list[Any]
    pop_mark: Callable[[], list[Any]]

    def _tuple(self, count: int) -> None:
        self.stack[-count:] = [_Tuple(self.stack[-count:])]

    def _marked_tuple(self) -> None:
        items = self.pop_mark()
        self.stack.append(_Tuple(items))

    dispatch: ClassVar[dict[int, Callable[[Any], None]]] = {
        **pickle._Unpickler.dispatch,  # noqa: SLF001
        pickle.TUPLE[0]: _marked_tuple,
        pickle.TUPLE1[0]: functools.partial(_tuple, count=1),
        pickle.TUPLE2[0]: functools.partial(_tuple, count=2),
        pickle.TUPLE3[0]: functools.partial(_tuple, count=3),
    }

    def find_class(self, module: str, name: str) -> Any:
        plain = {"datetime": datetime, "date": date, "time": time, "timedelta": timedelta, "timezone": timezone}
        if module == "datetime" and name in plain:
            return plain[name]
        if module == "builtins" and name in {"set", "frozenset"}:
            return {"set": set, "frozenset": frozenset}[name]
        if (module, name) in {("zoneinfo", "ZoneInfo"), ("pytz", "_p"), ("pytz", "timezone")}:
            return _named
        if (module, name) == ("builtins", "getattr"):  # a zone is pickled as a call of an attribute
            return lambda of, _attribute: _named if of is _named else Stand()
        if (module, name) == ("pytz", "_UTC"):
            return lambda: UTC
        return type(name, (Stand,), {"module": module, "name": name})


def _named(key: str, *_rest: object) -> tzinfo:
    return zone(key)


def _rows(url: str, table: str) -> list[tuple[object, object]]:
    if not re.fullmatch(r"[A-Za-z_][\w.]*", table, re.ASCII):
        raise ConfigurationError(f"--table: {table!r} is not the name of a table.")
    match parse(url):
        case SqliteURL(path) as file:
            question = f"SELECT id, job_state FROM {table} ORDER BY id"  # noqa: S608 - checked above
            try:
                with closing(sqlite3.connect(f"file:{quote(str(path))}?mode=ro", uri=True)) as connection:
                    return connection.execute(question).fetchall()
            except sqlite3.Error as error:
                raise _unread(file, table, str(error)) from error
        case PostgresURL() as place:
            import psycopg

            try:
                with psycopg.connect(place.conninfo, client_encoding="UTF8") as server:
                    return _on_postgres(server, place, table)
            except psycopg.Error as error:
                hidden = place.hide(str(error))
                cause = error if hidden == str(error) else None  # a traceback would show the password
                if isinstance(error, psycopg.OperationalError):
                    raise StoreUnavailable(f"{place} does not answer: {hidden}") from cause
                raise _unread(place, table, hidden) from cause
    raise ConfigurationError(f"{parse(url)}: write the URL of a job store on SQLite or PostgreSQL.")


def _on_postgres(server: psycopg.Connection[Any], place: PostgresURL, table: str) -> list[tuple[object, object]]:
    """Read only a table, with a search path that has nothing else in it.

    Views, row policies, and objects that others have put into `public` could run functions as this role.
    """
    from psycopg import sql

    server.read_only = True
    row = server.execute(_TABLE, [table]).fetchone()
    if row is None:
        raise _unread(place, table, "there is no such table")
    schema, name, kind = row
    if kind not in {"r", "p"}:
        raise _unread(place, table, "it is not a table")
    server.execute("SET LOCAL search_path = pg_catalog, pg_temp")
    server.execute("SET LOCAL row_security = off")
    question = sql.SQL("SELECT id, job_state FROM {} ORDER BY id").format(sql.Identifier(schema, name))
    return server.execute(question).fetchall()


_TABLE = """
    SELECT n.nspname, c.relname, c.relkind::pg_catalog.text
      FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid OPERATOR(pg_catalog.=) c.relnamespace
     WHERE c.oid OPERATOR(pg_catalog.=) pg_catalog.to_regclass(%s::pg_catalog.text)
"""


def _unread(place: object, table: str, why: str) -> ConfigurationError:
    first = why.splitlines()[0] if why else "no answer"
    return ConfigurationError(
        f"{table} of {place} cannot be read: {first}. "
        "Write the URL of the SQLAlchemyJobStore; --table names another table."
    )


def _job(names: Names, job: Mapping[str, Any]) -> Found:
    notes = list[str]()
    if not isinstance(job["trigger"], Stand):
        raise ConfigurationError("its trigger is not one of APScheduler 3.")
    trigger, extra = _trigger(job["trigger"], notes)
    policy = {**_policy(job), **extra}
    module, _, function = str(job["func"]).partition(":")
    if not all(map(_is_name, (*module.split("."), function))):  # it becomes code
        raise ConfigurationError(f"it calls {job['func']!r:.200}, which is not a function at the top of a module.")
    args, kwargs = job.get("args", ()), job.get("kwargs", {})
    if not isinstance(args, tuple | list) or not isinstance(kwargs, dict) or not all(map(_is_name, kwargs)):
        raise ConfigurationError("its arguments are not a list, or have names that Python does not allow.")
    call = f"{function}({', '.join([*map(repr, args), *(f'{key}={value!r}' for key, value in kwargs.items())])})"
    body: tuple[str, ...] = (f"from {module} import {function}", "", call)
    if not plain(list(args)) or not plain(kwargs):
        notes.append("some of its arguments are objects: write them into the body.")
        body = (f"raise NotImplementedError({call!r})",)
    if job.get("next_run_time") is None:
        notes.append("it is paused there; write scheduler.pause(…) after the first start.")
    id_ = str(job["id"])
    return Found(
        name=names.of(function if re.fullmatch(r"[0-9a-f]{32}", id_) else id_),
        trigger=trigger,
        body=body,
        source=f"{id_}: {job['func']}, {job['trigger'].name}",
        policy=tuple(policy.items()),
        notes=tuple(notes),
    )


def _is_name(word: object) -> bool:
    return isinstance(word, str) and word.isidentifier() and not keyword.iskeyword(word)


def _policy(job: Mapping[str, Any]) -> dict[str, object]:
    policy: dict[str, object] = {}
    grace = job.get("misfire_grace_time")
    if grace is not None and grace != _DEFAULT_GRACE:
        policy |= {"grace": float(grace), "missed": "skip"}
    elif job.get("coalesce") is False:
        policy["missed"] = "all"
    if (most := job.get("max_instances", 1)) != 1:
        if not isinstance(most, int):
            raise ConfigurationError(f"its max_instances is {most!r:.80}, which is not a number.")
        policy["max_running"] = most
    return policy


def _trigger(stand: Stand, notes: list[str]) -> tuple[Trigger, dict[str, object]]:
    words = stand.words
    extra: dict[str, object] = {"jitter": float(words["jitter"])} if words.get("jitter") else {}
    if words.get("end_date") is not None:
        notes.append(f"it had to end at {words['end_date'].isoformat()}: remove it then.")
    match stand.name:
        case "DateTrigger":
            return at(words["run_date"]), extra
        case "IntervalTrigger":
            return every(words["interval"], anchor=words["start_date"], tz=_zone(words)), extra
        case "CronTrigger":
            texts = _fields(words)
            for name in ("year", "week"):
                if texts.get(name, "*") != "*":
                    raise ConfigurationError(f"its {name} is {texts[name]!r}, which tenure's cron does not have.")
            start = words.get("start_date")
            if start is not None and start > walltime():
                notes.append(f"it had to begin at {start.isoformat()}: add it then.")
            return as_trigger(read_fields(texts), _zone(words)), extra
        case "CalendarIntervalTrigger":
            return _calendar(words), extra
        case "AndTrigger":
            return _all_of([_part(*part) for part in words["triggers"]]), extra
        case "OrTrigger":
            parts = [_trigger(_part(*part), notes)[0] for part in words["triggers"]]
            return Union.of(*parts), extra
        case other:
            raise _no_counterpart(f"a {other}")


def _fields(words: Mapping[str, Any]) -> dict[str, str]:
    """The fields of a cron trigger, as text."""
    texts = {field.words["name"]: _text(field) for field in words["fields"]}
    return {name: texts[name] for name in NAMES if name in texts}


def _calendar(words: Mapping[str, Any]) -> Trigger:
    steps: dict[str, Any] = dict(zip(("years", "months", "weeks", "days"), words["interval"], strict=True))
    clock: dict[str, Any] = dict(zip(("hour", "minute", "second"), words["time"], strict=True))
    made = CalendarIntervalTrigger(**steps, **clock, start_date=words["start_date"], timezone=_zone(words))
    return _translated(made, "a CalendarIntervalTrigger")


def _all_of(parts: list[Stand]) -> Trigger:
    """Only plain cron triggers can be combined into one rule for the times that they share."""
    if any(part.name != "CronTrigger" or part.words.get("start_date") or part.words.get("end_date") for part in parts):
        raise _no_counterpart("an AndTrigger of triggers other than plain cron")
    given: list[dict[str, Any]] = [{**_fields(part.words), "timezone": _zone(part.words)} for part in parts]
    return _translated(AndTrigger([CronTrigger(**words) for words in given]), "an AndTrigger of these")


def _translated(made: BaseTrigger, what: str) -> Trigger:
    found = made.pure(walltime())
    if found is None:
        raise _no_counterpart(what)
    return found


def _no_counterpart(what: str) -> ConfigurationError:
    return ConfigurationError(f"{what} has no counterpart. Write cron(…), every(…), calendar(…) or at(…).")


def _part(place: str, state: dict[str, Any]) -> Stand:
    module, _, name = place.partition(":")
    stand: Stand = type(name, (Stand,), {"module": module, "name": name})()
    stand.words = state
    return stand


def _zone(words: Mapping[str, Any]) -> str:
    key = getattr(words.get("timezone"), "key", None) or ("UTC" if words.get("timezone") is UTC else None)
    if key is None:
        raise ConfigurationError(f"its zone {words.get('timezone')!r} has no name.")
    return str(key)


def _text(field: Stand) -> str:
    return ",".join(_expression(field.words["name"], expression) for expression in field.words["expressions"])


def _expression(name: str, stand: Stand) -> str:
    words = stand.words
    step = f"/{words['step']}" if words.get("step") else ""
    match stand.name:
        case "AllExpression":
            return f"*{step}"
        case "LastDayOfMonthExpression":
            return "last"
        case "WeekdayPositionExpression":
            return f"{_PLACES[words['option_num']]} {_WEEKDAYS[words['weekday']]}"
        case "RangeExpression" | "MonthRangeExpression" | "WeekdayRangeExpression":
            first, last = words["first"], words.get("last")
            if last is None:
                return f"{first}{step}" if step else str(first)
            return str(first) if first == last and not step else f"{first}-{last}{step}"
        case other:
            raise ConfigurationError(f"its {name} is a {other}, which is not known.")
