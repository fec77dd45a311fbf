"""Writes imported jobs as a Python module."""

from __future__ import annotations

import keyword
import textwrap
from collections.abc import Iterable, Iterator
from datetime import timedelta

from tenure.importers.found import Found, Imported, Left
from tenure.triggers import At, Calendar, Cron, Every, Trigger
from tenure.triggers.combined import Closed, Excluding, Union
from tenure.triggers.zones import EPOCH

WIDTH = 116
_WORDS = ("at", "calendar", "closed", "cron", "every", "from_json")
_TAKEN = {*_WORDS, "scheduler", "subprocess", "os", "datetime"}
"""Names that the module itself uses."""
_UNITS = ((86_400, "d"), (3600, "h"), (60, "m"), (1, "s"))


def written(imported: Imported) -> str:
    """A module that can be run: `tenure start MODULE`."""
    words = {word for found in imported.found for word in _needed(found.trigger)}
    imports = {line for found in imported.found for line in found.imports}
    if any("datetime." in code(found.trigger) for found in imported.found):
        imports.add("from datetime import datetime")
    plain = sorted(line for line in imports if line.startswith("import "))
    ours = [f"from tenure.triggers import {', '.join(sorted(words))}"] if words else []
    head = [
        f'"""Jobs imported from {_quoted(imported.origin)}. Read what differs before you use them."""',
        "",
        *plain,
        *sorted(imports - set(plain)),
        *([""] if imports else []),
        "from tenure import Scheduler",
        *ours,
        "",
        *_comment(f"Differs: {text}" for text in imported.differences),
        *(["#"] if imported.differences and imported.left else []),
        *_comment(_left(left) for left in imported.left),
        *([""] if imported.differences or imported.left else []),
        "scheduler = Scheduler()  # on TENURE_URL",
    ]
    return "\n".join([*head, *(line for found in imported.found for line in _job(found))]) + "\n"


def code(trigger: Trigger) -> str:
    """The Python code of a trigger."""
    match trigger:
        case Cron():
            return f"cron({trigger.expr!r}{_zone(trigger.tz)})"
        case Every():
            anchor = (
                "" if trigger.anchor == EPOCH else f", anchor=datetime.fromisoformat({trigger.anchor.isoformat()!r})"
            )
            return f"every({_period(trigger.period)}{anchor}{_zone(trigger.tz)})"
        case At():
            return f"at(datetime.fromisoformat({trigger.when.isoformat()!r}){_zone(trigger.tz)})"
        case Calendar():
            when = f"start={trigger.start.isoformat()!r}, at={trigger.at.isoformat()!r}"
            return f"calendar({trigger.unit}={trigger.step}, {when}{_zone(trigger.tz)})"
        case Union():
            return " | ".join(code(part) for part in trigger.parts)
        case Excluding():
            inner = code(trigger.trigger)
            inner = f"({inner})" if isinstance(trigger.trigger, Union) else inner
            return " - ".join([inner, *(_closed(one) for one in trigger.closed)])
        case _:
            return f"from_json({trigger.to_json()!r})"


def _job(found: Found) -> Iterator[str]:
    function = f"{found.name}_" if keyword.iskeyword(found.name) or found.name in _TAKEN else found.name
    named = "" if function == found.name else f", name={found.name!r}"
    policy = "".join(f", {word}={value!r}" for word, value in found.policy)
    match found.trigger:
        case Cron():
            decorator = f"@scheduler.{code(found.trigger)[:-1]}{named}{policy})"
        case Every() if found.trigger.anchor == EPOCH:
            decorator = f"@scheduler.{code(found.trigger)[:-1]}{named}{policy})"
        case _:
            decorator = f"@scheduler.scheduled({code(found.trigger)}{named}{policy})"
    yield from ("", "")
    yield from _comment([found.source])
    yield from _comment(f"Differs: {note}" for note in found.notes)
    yield decorator
    yield f"def {function}() -> None:"
    yield from (f"    {line}".rstrip() for line in found.body)


def _needed(trigger: Trigger) -> set[str]:
    """The names that the code of a trigger needs from `tenure.triggers`, besides the decorators."""
    match trigger:
        case Cron():
            return set()
        case Every():
            return set() if trigger.anchor == EPOCH else {"every"}
        case _:
            text = code(trigger)
            return {word for word in _WORDS if f"{word}(" in text}


def _left(left: Left) -> str:
    return f"Left out: {left.source}: {left.why}"


def _quoted(text: str) -> str:
    """Escaped for a docstring."""
    return _spelt_out(text.replace("\\", "\\\\").replace('"', '\\"'))


def _spelt_out(text: str) -> str:
    """Without characters that Python source may not contain, or that would end the line."""
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def _comment(texts: Iterable[str]) -> Iterator[str]:
    for text in texts:
        for line in map(_spelt_out, text.replace("\t", " ").splitlines()):
            yield from textwrap.wrap(line, WIDTH, initial_indent="# ", subsequent_indent="#   ", break_on_hyphens=False)


def _period(period: timedelta) -> str:
    seconds = period.total_seconds()
    if seconds != int(seconds):
        return f"seconds={seconds!r}"
    text, left = "", int(seconds)
    for length, unit in _UNITS:
        count, left = divmod(left, length)
        text += f"{count}{unit}" if count else ""
    return repr(text)


def _closed(closed: Closed) -> str:
    dates = f", dates={[day.isoformat() for day in closed.dates]!r}" if closed.dates else ""
    weekly = f", weekly={list(closed.weekly)!r}" if closed.weekly else ""
    return f"closed({closed.name!r}{dates}{weekly}{_zone(closed.tz)})"


def _zone(tz: str | None) -> str:
    return "" if tz is None else f", tz={tz!r}"
