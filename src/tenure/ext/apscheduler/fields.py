"""The cron fields of APScheduler, parsed into sets and translated into tenure's `cron`.

Fields are keywords, Monday is 0, and all fields must match. A field that is not given is `*`, but below the last given
one it is its lowest value: `hour=3` is 03:00:00, `month=6` is 1 June, 00:00:00.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NoReturn

from tenure.errors import ConfigurationError
from tenure.triggers import Trigger, closed, cron
from tenure.triggers.combined import Union

NAMES = ("year", "month", "day", "week", "day_of_week", "hour", "minute", "second")
RANGES = {
    "year": (1970, 9999),
    "month": (1, 12),
    "day": (1, 31),
    "week": (1, 53),
    "day_of_week": (0, 6),
    "hour": (0, 23),
    "minute": (0, 59),
    "second": (0, 59),
}
_LEAST = {"month": "1", "day": "1", "hour": "0", "minute": "0", "second": "0"}
_WEEKDAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_WORDS: dict[str, dict[str, int]] = {
    "month": {name: number for number, name in enumerate(_MONTHS, 1)},
    "day_of_week": {name: number for number, name in enumerate(_WEEKDAYS)},
}
_PLACES = {"1st": 1, "2nd": 2, "3rd": 3, "4th": 4, "5th": 5, "last": 0}
_EXAMPLES = {
    "day": "15, '1-7', '*/2', 'last', '2nd mon' or 'last fri'",
    "day_of_week": "'mon-fri', 'sun' or 0 (Monday) to 6",
    "month": "6, '1-3', '*/2' or 'jan'",
}


@dataclass(frozen=True, slots=True)
class Field:
    """One parsed field."""

    name: str
    text: str
    given: bool
    """False for a default."""
    numbers: frozenset[int]
    places: frozenset[tuple[int, int]] = frozenset()
    """Of the day field: (weekday, n) for the n-th of the month, n = 0 for the last."""
    last: bool = False
    """Of the day field: the last of the month."""

    def __str__(self) -> str:
        return self.text

    @property
    def is_default(self) -> bool:
        """True if it was not given."""
        return not self.given

    @property
    def everything(self) -> bool:
        """True if it allows every value."""
        low, high = RANGES[self.name]
        return len(self.numbers) == high - low + 1


def read(given: Mapping[str, object]) -> dict[str, Field]:
    """All eight fields, by name."""
    left = {name: value for name, value in given.items() if value is not None}
    for name in left.keys() - set(NAMES):
        raise ConfigurationError(f"cron: {name}={left[name]!r} is not a field. The fields are {', '.join(NAMES)}.")
    fields, below = {}, False
    for name in NAMES:
        if name in left:
            fields[name] = _field(name, str(left.pop(name)).strip().lower(), given=True)
            below = not left
        else:
            fields[name] = _field(name, _LEAST.get(name, "*") if below else "*", given=False)
    return fields


def as_trigger(fields: Mapping[str, Field], tz: str) -> Trigger:
    """The trigger of all fields but `year` and `week`."""
    clock = " ".join(_text(fields[name]) for name in ("second", "minute", "hour"))
    month, day, weekday = _text(fields["month"]), fields["day"], fields["day_of_week"]
    if day.everything:
        week = "*" if weekday.everything else ",".join(_WEEKDAYS[number] for number in sorted(weekday.numbers))
        return cron(f"{clock} * {month} {week}", tz)
    parts: list[Trigger] = []
    if day.numbers or day.last:
        numbers = [_text(day)] if day.numbers else []
        parts.append(cron(f"{clock} {','.join([*numbers, *(['L'] if day.last else [])])} {month} *", tz))
    if day.places:
        places = ",".join(_place(*place) for place in sorted(day.places))
        parts.append(cron(f"{clock} * {month} {places}", tz))
    trigger = Union.of(*parts)
    if weekday.everything:
        return trigger
    others = [name.title() for number, name in enumerate(_WEEKDAYS) if number not in weekday.numbers]
    return trigger - closed("other weekdays", weekly=others)


def words(expr: str) -> dict[str, str] | None:
    """The fewest fields that say the same as an expression of tenure's cron; None if there are none."""
    parts = expr.lower().split()
    second, minute, hour, day, month, week = parts if len(parts) == 6 else ["0", *parts]  # noqa: PLR2004
    if re.search(r"[#?\d]", week):
        return None
    said = {"month": month, "day": day.replace("l", "last"), "day_of_week": _days(week)}
    said |= {"hour": hour, "minute": minute, "second": second}
    while len(said) > 1 and said[last := list(said)[-1]] == _LEAST.get(last, "*"):
        del said[last]  # what is below the last given field is its least value
    last = list(said)[-1]
    return {name: text for name, text in said.items() if text != "*" or name == last}


def _days(week: str) -> str:
    """Consecutive weekdays as a range."""
    numbers = [_WEEKDAYS.index(name) for name in week.split(",") if name in _WEEKDAYS]
    if len(numbers) > 2 and numbers == list(range(numbers[0], numbers[-1] + 1)):  # noqa: PLR2004 - two are listed
        return f"{_WEEKDAYS[numbers[0]]}-{_WEEKDAYS[numbers[-1]]}"
    return week


def shared(first: Mapping[str, Field], second: Mapping[str, Field]) -> dict[str, Field] | None:
    """The fields for the times that both allow; None if no fields can say that, or no time is left."""
    found = {name: _shared(first[name], second[name]) for name in NAMES}
    fields = {name: field for name, field in found.items() if field is not None}
    return fields if len(fields) == len(found) else None


def _shared(first: Field, second: Field) -> Field | None:
    if second.everything or first == second:
        return first
    if first.everything:
        return second
    numbers = first.numbers & second.numbers
    if not numbers or first.places or second.places or first.last or second.last:
        return None
    return Field(first.name, ",".join(map(str, sorted(numbers))), given=True, numbers=numbers)


def _field(name: str, text: str, *, given: bool) -> Field:
    numbers: set[int] = set()
    places: set[tuple[int, int]] = set()
    last = False
    for item in re.split(" *, *", text):
        if name == "day" and item == "last":
            last = True
        elif name == "day" and (found := re.fullmatch(r"(\S+) +(\w+)", item)) and found[1] in _PLACES:
            places.add((_number(name, found[2], item, _WORDS["day_of_week"], RANGES["day_of_week"]), _PLACES[found[1]]))
        else:
            numbers.update(_span(name, item))
    return Field(name, text, given, frozenset(numbers), frozenset(places), last)


def _span(name: str, item: str) -> range:
    """`*`, `*/5`, `3`, `3-9`, `3-9/2`, `3/2`, and the same with names where the field has names."""
    low, high = RANGES[name]
    found = re.fullmatch(r"(?:(\*)|(\w+)(?:-(\w+))?)(?:/(\d+))?", item, re.ASCII)
    if found is None:
        _refuse(name, item, "cannot be read")
    star, first, last, step_text = found.groups()
    words = _WORDS.get(name, {})
    if not star:
        least, most = low, high
        low = _number(name, first, item, words, (least, most))
        if last is not None:
            high = _number(name, last, item, words, (least, most))
        elif step_text is None:
            high = low
        if high < low:
            _refuse(name, item, "runs backwards")
    step = int(step_text) if step_text else 1
    if step == 0 or (step_text and step > high - low):
        _refuse(name, item, f"has a step of {step}")
    return range(low, high + 1, step)


def _number(name: str, text: str, item: str, words: Mapping[str, int], limits: tuple[int, int]) -> int:
    if text in words:
        return words[text]
    if not text.isdecimal():
        _refuse(name, item, f"has {text!r}, which is not a value of this field")
    if not limits[0] <= int(text) <= limits[1]:
        _refuse(name, item, f"has {text}, and the values are {limits[0]} to {limits[1]}")
    return int(text)


def _refuse(name: str, item: str, problem: str) -> NoReturn:
    low, high = RANGES[name]
    example = _EXAMPLES.get(name, f"{low} to {high}, a list '{low},{low + 1}', a range, '*' or '*/2'")
    raise ConfigurationError(f"cron: {name}={item!r} {problem}. Write {example}.")


def _text(field: Field) -> str:
    """The numbers of a field as tenure's cron writes them. A leading star stays: it decides about clock changes."""
    if field.everything or re.fullmatch(r"\*/\d+", field.text):
        return "*" if field.everything else field.text
    spans: list[list[int]] = []
    for number in sorted(field.numbers):
        if spans and spans[-1][1] == number - 1:
            spans[-1][1] = number
        else:
            spans.append([number, number])
    return ",".join(str(low) if low == high else f"{low}-{high}" for low, high in spans)


def _place(weekday: int, n: int) -> str:
    return f"{_WEEKDAYS[weekday]}#{n}" if n else f"{(weekday + 1) % 7}L"
