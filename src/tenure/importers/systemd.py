"""Imports systemd timers (`OnCalendar=`, `OnUnitActiveSec=`), with the commands of their services."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

from tenure.errors import ConfigurationError
from tenure.importers.found import Found, Imported, Left, Names
from tenure.triggers import Trigger, closed, cron, every
from tenure.triggers.combined import Union
from tenure.triggers.zones import zone_key

DIFFERENCES = (
    (
        "systemd starts a service on its own host. Here any node starts it, once in the cluster: the command must be "
        "on all of them, or write queue='…' on the job and queues=['…'] on the nodes that have it."
    ),
    (
        "AccuracySec= lets systemd start up to a minute late by default; here a run starts within milliseconds of its "
        "due time."
    ),
    (
        "the command runs as the user and with the limits of the node, without systemd's sandbox, cgroup and journal "
        "for the service."
    ),
)
_SHORT = {
    "minutely": "*-*-* *:*:00",
    "hourly": "*-*-* *:00:00",
    "daily": "*-*-* 00:00:00",
    "weekly": "Mon *-*-* 00:00:00",
    "monthly": "*-*-01 00:00:00",
    "quarterly": "*-01,04,07,10-01 00:00:00",
    "semiannually": "*-01,07-01 00:00:00",
    "yearly": "*-01-01 00:00:00",
    "annually": "*-01-01 00:00:00",
}
_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_SPAN = {
    "us": 1e-6, "usec": 1e-6, "ms": 1e-3, "msec": 1e-3, "s": 1, "sec": 1, "second": 1, "seconds": 1,
    "m": 60, "min": 60, "minute": 60, "minutes": 60, "h": 3600, "hr": 3600, "hour": 3600, "hours": 3600,
    "d": 86400, "day": 86400, "days": 86400, "w": 604800, "week": 604800, "weeks": 604800,
    "month": 2629800, "months": 2629800, "M": 2629800, "y": 31557600, "year": 31557600, "years": 31557600,
}  # fmt: skip


def read(paths: list[Path], *, tz: str) -> Imported:
    """Read timer units, and those in the given folders."""
    files = [file for path in paths for file in (sorted(path.glob("*.timer")) if path.is_dir() else [path])]
    names, found, left = Names(), list[Found](), list[Left]()
    for file in files:
        try:
            found.append(_job(names, file, tz))
        except ConfigurationError as error:
            left.append(Left(file.name, str(error)))
    return Imported(", ".join(map(str, paths)), tuple(found), tuple(left), DIFFERENCES)


def calendar(text: str, tz: str) -> Trigger:
    """The trigger of an `OnCalendar=`: weekdays, date and time must all match."""
    words = text.split()
    if len(words) > 1 and words[-1][0].isalpha():
        tz = zone_key(words.pop(), f"OnCalendar={text}")
    words = _SHORT.get(" ".join(words).lower(), " ".join(words)).split()
    weekdays = set(range(7))
    if words and words[0][0].isalpha():
        weekdays = _weekdays(words.pop(0))
    date = words.pop(0) if words and "-" in words[0] else "*-*-*"
    time = words.pop(0) if words else "00:00:00"
    if words:
        raise ConfigurationError(f"OnCalendar={text}: {' '.join(words)!r} is not understood.")
    *year, month, day = date.split("-")
    if year not in ([], ["*"]):
        raise ConfigurationError(
            f"OnCalendar={text}: a year cannot be imported. Write at(datetime(…)) for a single date."
        )
    if "~" in date:
        month, _, day = date.removeprefix("*-").partition("~")
        if day not in {"01", "1"}:
            raise ConfigurationError(
                f"OnCalendar={text}: of the days counted from the end of the month only the last can be imported."
            )
        days = "L"
    else:
        days = _field(day, 1, 31)
    clock = [*time.split(":"), "00"][:3]
    hour, minute, second = (_field(part, 0, top) for part, top in zip(clock, (23, 59, 59), strict=True))
    fields = f"{minute} {hour} {days} {_field(month, 1, 12)}"
    if second != "0":
        fields = f"{second} {fields}"
    if len(weekdays) == len(_DAYS):
        return cron(f"{fields} *", tz)
    if days == "*":
        return cron(f"{fields} {','.join(_DAYS[day] for day in sorted(weekdays))}", tz)
    return cron(f"{fields} *", tz) - closed(
        "other weekdays", weekly=[d for n, d in enumerate(_DAYS) if n not in weekdays]
    )


def span(text: str) -> float:
    """A time span of systemd's, in seconds."""
    total, end = 0.0, 0
    for part in re.finditer(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)", text.strip()):
        if part.start() != end or part[2] not in {*_SPAN, ""}:
            break
        total, end = total + float(part[1]) * _SPAN.get(part[2], 1), part.end()
    if not end or end != len(text.strip()):
        raise ConfigurationError(f"{text!r} is not a time span.")
    return total


def _job(names: Names, file: Path, tz: str) -> Found:
    timer = _unit(file)
    service_file = file.with_name(timer.get("Unit", [f"{file.stem}.service"])[-1])
    service = _unit(service_file) if service_file.exists() else {}
    notes = []
    parts: list[Trigger] = [calendar(text, tz) for text in timer.get("OnCalendar", [])]
    for text in (*timer.get("OnUnitActiveSec", []), *timer.get("OnUnitInactiveSec", [])):
        parts.append(every(seconds=span(text)))
        notes.append("systemd counts from the last activation; here it counts from a fixed time that all nodes share.")
    if not parts:
        raise ConfigurationError(
            "it has neither OnCalendar= nor OnUnitActiveSec=: the start of a machine is not a due time of a cluster."
        )
    if timer.keys() & {"OnBootSec", "OnStartupSec", "OnActiveSec"}:
        notes.append(
            "OnBootSec= and similar settings are left out: the start of a machine is not a due time of a cluster."
        )
    policy = _policy(timer, service)
    commands = service.get("ExecStart", [])
    body = tuple(f"subprocess.run({_arguments(command, service)})" for command in commands)
    if not body:
        notes.append(f"{service_file.name} was not found beside the timer, or has no ExecStart=.")
    if user := service.get("User"):
        notes.append(f"it ran as {user[-1]}; here it runs as the user of the node.")
    return Found(
        name=names.of(file.stem),
        trigger=Union.of(*parts),
        body=body or (f"raise NotImplementedError({service_file.name!r})",),
        source=f"{file.name}: "
        + ", ".join(f"{key}={value}" for key, values in timer.items() if key.startswith("On") for value in values),
        policy=policy,
        imports=(*(("import subprocess",) if body else ()), *(("import os",) if "env=" in "".join(body) else ())),
        notes=tuple(notes),
    )


def _policy(timer: dict[str, list[str]], service: dict[str, list[str]]) -> tuple[tuple[str, object], ...]:
    policy: dict[str, object] = {}
    if timer.get("Persistent", ["no"])[-1].lower() not in {"yes", "true", "on", "1"}:
        policy["missed"] = "skip"
    if delay := timer.get("RandomizedDelaySec"):
        fixed = timer.get("FixedRandomDelay", ["no"])[-1].lower() in {"yes", "true", "on", "1"}
        policy["spread" if fixed else "jitter"] = span(delay[-1])
    limit = service.get("RuntimeMaxSec") or service.get("TimeoutStartSec")
    if limit and limit[-1] != "infinity":
        policy["timeout"] = span(limit[-1])
    return tuple(policy.items())


def _unit(file: Path) -> dict[str, list[str]]:
    """All settings of a unit; an empty value clears those before it."""
    settings: dict[str, list[str]] = {}
    for line in re.sub(r"\\\n", " ", file.read_text()).splitlines():
        key, equals, value = line.strip().partition("=")
        if equals and not key.startswith(("#", ";")):
            if not value.strip():
                settings.pop(key.strip(), None)
            else:
                settings.setdefault(key.strip(), []).append(value.strip())
    return settings


def _arguments(command: str, service: dict[str, list[str]]) -> str:
    ignored = command.lstrip("@:+!").startswith("-")
    arguments = [repr(shlex.split(command.lstrip("@-:+!"))), f"check={not ignored}"]
    if folder := service.get("WorkingDirectory"):
        arguments.append(f"cwd={folder[-1].lstrip('-')!r}")
    pairs = [pair.partition("=") for line in service.get("Environment", []) for pair in shlex.split(line)]
    if pairs:
        arguments.append("env={**os.environ, " + ", ".join(f"{key!r}: {value!r}" for key, _, value in pairs) + "}")
    return ", ".join(arguments)


def _weekdays(text: str) -> set[int]:
    days: set[int] = set()
    for item in text.split(","):
        ends = [end[:3].title() for end in re.split(r"\.\.|-", item) if end]
        if not ends or any(end not in _DAYS for end in ends):
            raise ConfigurationError(f"OnCalendar: {item!r} is not a weekday.")
        low, high = _DAYS.index(ends[0]), _DAYS.index(ends[-1])
        if high < low:
            raise ConfigurationError(f"OnCalendar: {item!r} runs backwards, which systemd refuses as well.")
        days.update(range(low, high + 1))
    return days


def _field(text: str, low: int, high: int) -> str:
    """`*`, `5`, `1..5`, `0/15`, and lists of these, as a field of cron."""
    if text == "*":
        return "*"
    items = []
    for item in text.split(","):
        span_, _, step = item.partition("/")
        first, dots, last = span_.partition("..")
        if not re.fullmatch(r"(\*|\d+)(\.\.\d+)?(/\d+)?", item):
            raise ConfigurationError(f"OnCalendar: {item!r} is not understood.")
        begin = low if first == "*" else int(first)
        end = int(last) if dots else high if step or first == "*" else begin
        if first == "*" and step:
            items.append(f"*/{int(step)}")
        else:
            items.append(f"{begin}" if begin == end else f"{begin}-{end}" + (f"/{int(step)}" if step else ""))
    return ",".join(items)
