"""Parses the cron language, as Debian's cron reads it, into sets of bits. An error names the doubtful part, and why.

A field becomes a number whose bit `n` is set if `n` matches. Which days of a month match depends only on the weekday of
its first day and on its length, so the 28 possible months are computed once each.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NoReturn

from tenure.errors import ConfigurationError
from tenure.util.plurals import a_type

ALIASES = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}

_MONTHS = ["JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"]
_WEEKDAYS = ["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"]
_WHOLE_WEEK = 0b1111111
_LENGTHS = {2: (28, 29), 4: (30,), 6: (30,), 9: (30,), 11: (30,)}
_WEEK_STEP = 0b10000001000000100000010000001  # days 0, 7, 14, 21, 28


@dataclass(frozen=True, slots=True)
class _Kind:
    name: str
    low: int
    high: int
    names: dict[str, int] = field(default_factory=dict)


_SECOND, _MINUTE, _HOUR = _Kind("second", 0, 59), _Kind("minute", 0, 59), _Kind("hour", 0, 23)
_DAY = _Kind("day of month", 1, 31)
_MONTH = _Kind("month", 1, 12, {name: number for number, name in enumerate(_MONTHS, 1)})
_WEEKDAY = _Kind("day of week", 0, 7, {name: number for number, name in enumerate(_WEEKDAYS)})


_KINDS = (_SECOND, _MINUTE, _HOUR, _DAY, _MONTH, _WEEKDAY)


@dataclass(frozen=True, slots=True)
class Days:
    """The day rule of an expression: both day fields, and whether one of them is enough."""

    numbers: int
    last: bool
    last_weekday: bool
    weekdays: int
    """Seven bits, Sunday first."""
    nth: frozenset[tuple[int, int]]
    """(weekday, n): the n-th one of the month; n = 0 means the last."""
    both: bool

    @property
    def weekly(self) -> int | None:
        """The weekdays, seven bits, if nothing else counts; None if the place in the month does."""
        all_numbers = self.numbers == _every(_DAY)
        if self.both and all_numbers and not self.nth:
            return self.weekdays
        if not self.both and (all_numbers or self.weekdays == _WHOLE_WEEK):
            return _WHOLE_WEEK
        return None

    def of_month(self, first_weekday: int, length: int) -> int:
        """The matching days of a month, as bits, if its first day is this weekday (Sunday is 0)."""
        whole = (1 << (length + 1)) - 2
        by_number = self.numbers
        if self.last:
            by_number |= 1 << length
        if self.last_weekday:
            last = (first_weekday + length - 1) % 7
            by_number |= 1 << (length - {0: 2, 6: 1}.get(last, 0))
        by_weekday = 0
        for weekday in range(7):
            if self.weekdays >> weekday & 1:
                by_weekday |= _WEEK_STEP << 1 + (weekday - first_weekday) % 7
        for weekday, n in self.nth:
            first = 1 + (weekday - first_weekday) % 7
            by_weekday |= 1 << (first + 7 * (n - 1) if n else first + (length - first) // 7 * 7)
        return (by_number & by_weekday if self.both else by_number | by_weekday) & whole


@dataclass(frozen=True, slots=True)
class Fields:
    """A parsed expression. The fields are bits."""

    seconds: int
    minutes: int
    hours: int
    months: int
    days: Days
    follows_wall_clock: bool
    """True if the minute or hour field begins with a star: Debian's cron lets such jobs follow the wall clock."""


def normalise(expr: str) -> str:
    """The normal form of an expression: single spaces, names in capitals, aliases in small letters."""
    if not isinstance(expr, str):
        raise ConfigurationError(f"cron: {expr!r} is {a_type(expr)}. Write an expression such as '30 2 * * *'.")
    if not expr.isascii():
        odd = next(letter for letter in expr if not letter.isascii())
        raise ConfigurationError(
            f"cron {expr!r}: {odd!r} is not a plain letter, digit or space. Type it instead of pasting it."
        )
    text = " ".join(expr.split())
    return text.lower() if text.startswith("@") else text.upper()


@lru_cache(maxsize=4096)
def parse(expr: str) -> Fields:
    """Parse a normalised expression. An error names the part that is wrong."""
    parts = spell_out(expr).split(" ")
    match len(parts):
        case 5:
            parts = ["0", *parts]
        case 6:
            pass
        case _:
            _refuse_count(expr, len(parts))
    second, minute, hour, day, month, weekday = parts
    seconds, minutes, hours = (
        _bits(expr, kind, text) for kind, text in ((_SECOND, second), (_MINUTE, minute), (_HOUR, hour))
    )
    months = _bits(expr, _MONTH, month)
    days = _days(expr, day, weekday)
    if not _ever(months, days):
        _refuse(expr, f"{day} {month} {weekday}", "no such date ever comes", "a day that the month has; L is its last")
    return Fields(seconds, minutes, hours, months, days, minute.startswith("*") or hour.startswith("*"))


def spell_out(expr: str) -> str:
    """The expression in Debian's language: replaces an alias, or what Quartz writes in six fields."""
    if not expr.startswith("@"):
        parts = expr.split(" ")
        if len(parts) != len(_KINDS):
            return expr
        _refuse_numbered_weekdays(expr)
        return " ".join(map(_from_quartz, parts, _KINDS))
    if expr in ALIASES:
        return ALIASES[expr]
    if expr == "@reboot":
        raise ConfigurationError(
            "cron: '@reboot' names no time: many nodes start and stop, and a due time belongs to none of them. "
            "Call the function when your program starts."
        )
    if expr.startswith("@every"):
        raise ConfigurationError(f"cron: {expr!r} is not cron. Write every('10m') for elapsed time.")
    raise ConfigurationError(f"cron: {expr!r} is not known. Write one of {', '.join(ALIASES)}, or five fields.")


def _from_quartz(text: str, kind: _Kind) -> str:
    """A field of Quartz in Debian's language: `?` is a star, `5/10` counts from 5 on, `FRIL` is `5L`."""
    return ",".join(_item_from_quartz(item, kind) for item in text.split(","))


def _item_from_quartz(item: str, kind: _Kind) -> str:
    if item == "?" and kind in (_DAY, _WEEKDAY):
        return "*"
    if kind is _WEEKDAY and item.endswith("L") and item[:-1] in kind.names:
        return f"{kind.names[item[:-1]]}L"
    first, _, step = item.partition("/")
    if not re.fullmatch("0*[1-9][0-9]*", step):
        return item
    low = kind.names.get(first, int(first) if re.fullmatch("[0-9]{1,9}", first) else -1)
    if not kind.low <= low <= kind.high:
        return item  # refused below, as it was written
    if low == kind.low and kind in (_SECOND, _MINUTE, _HOUR):
        return f"*/{step}"  # all of them: follows the wall clock as the star does
    return f"{first}-{max(_top(kind), low)}/{step}"


def _refuse_numbered_weekdays(expr: str) -> None:
    """Quartz (Sunday is 1) and Spring (Sunday is 0) both write `?`: a numbered weekday beside it may mean either."""
    *_, day, _, weekday = expr.split(" ")
    if day == "?" and re.search("[0-9]", re.sub("/[0-9]+|#[0-9]", "", weekday)):
        _refuse(expr, weekday, "Quartz counts Sunday as 1, cron as 0", "names, such as MON-FRI, FRIL or MON#2")


def _days(expr: str, day: str, weekday: str) -> Days:
    numbers, last, last_weekday = 0, False, False
    for item in _items(expr, _DAY, day):
        if item == "L":
            last = True
        elif item == "LW":
            last_weekday = True
        else:
            numbers |= _item(expr, _DAY, item)
    weekdays, nth = 0, set()
    for item in _items(expr, _WEEKDAY, weekday):
        if one := re.fullmatch(r"([0-9]+)L", item):
            nth.add((_number(expr, _WEEKDAY, one[1], item) % 7, 0))
        elif one := re.fullmatch(r"([0-9]+|[A-Z]+)#(.*)", item):
            if not re.fullmatch("[1-5]", one[2]):
                _refuse(expr, item, "a month has no such week", f"{one[1]}#1 to {one[1]}#5, or 5L for the last Friday")
            nth.add((_number(expr, _WEEKDAY, one[1], item) % 7, int(one[2])))
        else:
            weekdays |= _item(expr, _WEEKDAY, item)
    weekdays = (weekdays | weekdays >> 7) & _WHOLE_WEEK
    both = day.startswith("*") or weekday.startswith("*")
    return Days(numbers, last, last_weekday, weekdays, frozenset(nth), both)


def _ever(months: int, days: Days) -> bool:
    return any(
        days.of_month(first, length)
        for month in range(1, 13)
        if months >> month & 1
        for length in _LENGTHS.get(month, (31,))
        for first in range(7)
    )


def _bits(expr: str, kind: _Kind, text: str) -> int:
    if text == "*":
        return _every(kind)
    bits = 0
    for item in _items(expr, kind, text):
        bits |= _item(expr, kind, item)
    return bits


def _items(expr: str, kind: _Kind, text: str) -> list[str]:
    items = text.split(",")
    if not all(items):
        _refuse(
            expr, text, f"the {kind.name} field has an empty place in its list", "the values with one comma between"
        )
    return items


def _item(expr: str, kind: _Kind, item: str) -> int:
    """A value, a range or a star, the latter two with a step."""
    if item == "*":
        return _every(kind)
    span, slash, step_text = item.partition("/")
    first, dash, last = span.partition("-")
    if slash and not re.fullmatch("[0-9]+", step_text):
        _refuse(expr, item, f"the step of the {kind.name} field is not a number", "a step such as */5")
    step = int(step_text[:9]) if slash else 1
    if step == 0:
        _refuse(expr, item, f"the step of the {kind.name} field is zero", "a step of 1 or more, such as */5")
    if span == "*":
        return _every(kind, step)
    low = _number(expr, kind, first, item)
    if not dash:
        if slash:
            _refuse(
                expr, item, f"a step needs a range in the {kind.name} field", f"{first}-{_top(kind)}/{step} or */{step}"
            )
        return 1 << low
    high = _number(expr, kind, last, item)
    if high < low:
        hint = f"{first}-{_top(kind)},{kind.low}-{last}"
        if kind is _WEEKDAY:
            hint = f"{low}-7" if high == 0 else f"{low}-6,0-{high}"
            if "?" in expr:  # numbers beside it are refused
                names = list(kind.names)
                hint = f"{names[low]}-SAT,SUN-{names[high]}" if high else f"{names[low]}-SAT,SUN"
        _refuse(expr, item, f"the range of the {kind.name} field runs backwards", hint)
    return sum(1 << value for value in range(low, high + 1, step))


def _number(expr: str, kind: _Kind, text: str, item: str) -> int:
    if text in kind.names:
        return kind.names[text]
    if not re.fullmatch("[0-9]+", text):
        _refuse(expr, item, f"that is not valid in the {kind.name} field", _advice(kind, item))
    value = int(text[-9:])
    if len(text) > 9 or not kind.low <= value <= kind.high:  # noqa: PLR2004 - no field has as many digits
        _refuse(expr, item, f"{text} is out of range in the {kind.name} field", f"{kind.low} to {kind.high}")
    return value


def _advice(kind: _Kind, item: str) -> str:
    if item == "?":
        return "*"
    if item.startswith("H"):
        return "a number; tenure spreads the starts of jobs if you write spread="
    if kind is _DAY and "W" in item:
        return "a number, L for the last day of the month, or LW for its last weekday from Monday to Friday"
    if kind is _DAY and "L" in item:
        return "a number, or L alone for the last day of the month"
    if kind is _WEEKDAY and "L" in item:
        return "a day before the L: 5L, or FRIL in six fields, for the last Friday of the month"
    for name, number in kind.names.items():
        if item.startswith(name):
            return f"{name} or {number}"
    names = f" or {next(iter(kind.names))} to {list(kind.names)[-1]}" if kind.names else ""
    return f"{kind.low} to {kind.high}{names}, a list 1,2, a range 1-5, or a step */2"


def _top(kind: _Kind) -> int:
    return 6 if kind is _WEEKDAY else kind.high


def _every(kind: _Kind, step: int = 1) -> int:
    if step == 1:
        return (2 << kind.high) - (1 << kind.low)
    return sum(1 << value for value in range(kind.low, kind.high + 1, step))


def _refuse_count(expr: str, count: int) -> NoReturn:
    if not expr:
        raise ConfigurationError(
            "cron: the expression is empty. Write five fields, such as '30 2 * * *' for 02:30 every day."
        )
    more = " tenure has no year field; say which dates with at(…)." if count == 7 else ""  # noqa: PLR2004 - Quartz
    raise ConfigurationError(
        f"cron: {expr!r} has {count} field{'s' if count > 1 else ''}. Write five (minute, hour, day of month, month, "
        f"day of week), or six with seconds first, and nothing after them.{more}"
    )


def _refuse(expr: str, part: str, problem: str, instead: str) -> NoReturn:
    raise ConfigurationError(f"cron {expr!r}: {part!r}: {problem}. Write {instead}.")
