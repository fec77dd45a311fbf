"""A cron expression in plain words: when in the day, then on which days."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

from tenure.triggers.grammar import spell_out

MAX_TIMES = 6
"""Up to this many times of the day are named one by one."""

_MONTHS = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
]
_WEEKDAYS = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"]


class _Span(NamedTuple):
    """One item of a field: `5` is from 5 to 5, `*/2` is all in steps of 2."""

    low: int
    high: int
    step: int = 1
    every: bool = False

    @property
    def one(self) -> bool:
        return self.low == self.high


def explained(expr: str) -> str:
    """Such as 'At 02:30 every day' or 'Every 5 minutes from 09:00 to 17:59 on Monday to Friday'."""
    fields = spell_out(expr).split(" ")
    second, minute, hour, day, month, weekday = fields if len(fields) == 6 else ["0", *fields]  # noqa: PLR2004
    time, named = _time(_spans(second, 0, 59), _spans(minute, 0, 59), _spans(hour, 0, 23))
    days = _days(day, month, weekday)
    text = f"{time} {days}" if days else f"{time} every day" if named else time
    return text[0].upper() + text[1:]


def _spans(field: str, low: int, high: int, names: Sequence[str] = ()) -> list[_Span]:
    found: list[_Span] = []
    for item in field.split(","):
        span, _, step = item.partition("/")
        first, _, last = span.partition("-")
        whole = span == "*"
        begin = low if whole else _number(first, names)
        end = high if whole else _number(last, names) if last else begin
        if whole or (begin == low and end == high):
            found.append(_Span(low, high, int(step or 1), every=True))
        elif len(values := range(begin, end + 1, int(step or 1))) <= (MAX_TIMES if step else 2):
            found += [_Span(value, value) for value in values]
        else:
            found.append(_Span(begin, end, int(step or 1)))
    return list(dict.fromkeys(found))


def _number(text: str, names: Sequence[str]) -> int:
    return next((at for at, name in enumerate(names) if name[:3].upper() == text), None) or (
        0 if text == "SUN" else int(text)
    )


def _time(seconds: list[_Span], minutes: list[_Span], hours: list[_Span]) -> tuple[str, bool]:
    """The time of the day, and whether it names times of the clock."""
    each_hour, each_minute = _all(hours), _all(minutes)
    at_zero = seconds == [_Span(0, 0)]
    if all(span.one for span in (*seconds, *minutes, *hours)):
        times = [
            f"{hour.low:02}:{minute.low:02}" + ("" if at_zero else f":{second.low:02}")
            for hour in sorted(hours)
            for minute in sorted(minutes)
            for second in sorted(seconds)
        ]
        if len(times) <= MAX_TIMES:
            return f"at {_listed(times)}", True
    if at_zero and len(minutes) == len(hours) == 1 and hours[0].one and minutes[0].step == 1:
        hour, (low, high, *_) = hours[0].low, minutes[0]
        return f"every minute from {hour:02}:{low:02} to {hour:02}:{high:02}", False
    if at_zero and minutes == [_Span(0, 0)] and len(hours) == 1 and hours[0].every:
        step = hours[0].step
        if 24 % step == 0:
            return "every hour" if step == 1 else f"every {step} hours", False
    parts = []
    if not at_zero:
        parts.append(_unit(seconds, "second", "minute" if each_minute else ""))
    if not (each_minute and not at_zero):
        parts.append(_unit(minutes, "minute", "hour" if each_hour else ""))
    if not each_hour:
        parts.append(_hours(hours, whole=each_minute or any(not span.one for span in minutes)))
    return " ".join(parts), False


def _unit(spans: list[_Span], unit: str, of: str) -> str:
    """'every 5 minutes', 'at minutes 10 and 40 of every hour'."""
    rest = f" of every {of}" if of else ""
    if len(spans) == 1 and spans[0].every:
        step = spans[0].step
        if step == 1:
            return f"every {unit}"
        uneven = "" if 60 % step == 0 else f" from the start of each {'minute' if unit == 'second' else 'hour'}"
        return f"every {step} {unit}s{uneven}"
    if all(span.one for span in spans):
        return f"at {unit}{'s' if len(spans) > 1 else ''} {_listed([str(span.low) for span in spans])}{rest}"
    if len(spans) == 1:
        low, high, step, _ = spans[0]
        return f"every {'' if step == 1 else _ordinal(step) + ' '}{unit} from {low} to {high}{rest}"
    return f"at {unit}s {_listed([_ranged(span, str) for span in spans])}{rest}"


def _hours(spans: list[_Span], *, whole: bool) -> str:
    if len(spans) == 1 and spans[0].one and whole:
        return f"from {spans[0].low:02}:00 to {spans[0].low:02}:59"
    if len(spans) == 1 and not spans[0].one:
        low, high, step, every = spans[0]
        if step == 1 and whole:
            return f"from {low:02}:00 to {high:02}:59"
        return f"of every {_ordinal(step)} hour" + ("" if every else f" from {low:02} to {high:02}")
    return f"of the hour{'' if len(spans) == 1 else 's'} {_listed([_ranged(span, '{:02}'.format) for span in spans])}"


def _days(day: str, month: str, weekday: str) -> str:
    dates, weekdays = _dates(day), _weekday_names(weekday)
    months = _spans(month, 1, 12, ["", *_MONTHS])
    parts = []
    if dates and weekdays:
        # Debian: if one of the fields begins with a star, both must match; otherwise one is enough.
        both = day.startswith("*") or weekday.startswith("*")
        parts.append(f"{dates}, if it is {weekdays}," if both else f"{dates} and also on {weekdays}")
    elif weekdays:
        parts.append(f"on {weekdays}")
    elif dates:
        parts.append(dates)
    if not _all(months):
        names = [_ranged(span, lambda number: _MONTHS[number - 1]) for span in months]
        parts.append(f"{'' if parts else 'every day '}in {_listed(names)}")
    return " ".join(parts).removesuffix(",")


def _dates(field: str) -> str:
    """'on the 1st and 15th'; '' for every day."""
    plain = ",".join(item for item in field.split(",") if item.rstrip("/0123456789") not in {"L", "LW"})
    spans = _spans(plain, 1, 31) if plain else []
    if spans and _all(spans):
        return ""
    words = [
        f"every {_ordinal(span.step)} day from the 1st"
        if span.every
        else f"the {_ordinal(span.low)}"
        if span.one
        else _ranged(span, lambda number: f"the {_ordinal(number)}")
        for span in spans
    ]
    items = field.split(",")
    words += ["the last day of the month"] if any(re.fullmatch(r"L(/\d+)?", item) for item in items) else []
    words += ["the last weekday of the month"] if any(item.startswith("LW") for item in items) else []
    return f"on {_listed(words)}"


def _weekday_names(field: str) -> str:
    """'Monday to Friday'; '' for all of them."""
    words: list[str] = []
    covered: set[int] = set()
    for item in field.split(","):
        name, _, nth = item.partition("#")
        if nth:
            words.append(f"the {_ordinal(int(nth))} {_WEEKDAYS[_number(name, _WEEKDAYS)]} of the month")
        elif item.endswith("L"):
            words.append(f"the last {_WEEKDAYS[_number(item[:-1], _WEEKDAYS)]} of the month")
        else:
            spans = _spans(item, 0, 6, _WEEKDAYS)
            covered |= {value % 7 for span in spans for value in range(span.low, span.high + 1, span.step)}
            if len(covered) == 7:  # noqa: PLR2004 - days
                return ""
            words += [
                f"every {_ordinal(span.step)} day of the week from Sunday"
                if span.every
                else _ranged(span, _WEEKDAYS.__getitem__)
                for span in spans
            ]
    return _listed(list(dict.fromkeys(words)))


def _all(spans: list[_Span]) -> bool:
    return any(span.every and span.step == 1 for span in spans)


def _ranged(span: _Span, say: Callable[[int], str]) -> str:
    if span.one:
        return say(span.low)
    steps = f"every {_ordinal(span.step)} from " if span.step > 1 else ""
    return f"{steps}{say(span.low)} to {say(span.high)}"


def _ordinal(number: int) -> str:
    ending = "th" if 10 < number % 100 < 14 else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")  # noqa: PLR2004
    return f"{number}{ending}"


def _listed(words: Sequence[str]) -> str:
    *most, last = words
    return f"{', '.join(most)} and {last}" if most else last
