"""Durations as users write them: a number of seconds, a `timedelta`, or "250ms", "30s", "20m", "1h30m", "2d", "1w"."""

from __future__ import annotations

import math
import re
from datetime import timedelta

from tenure.errors import ConfigurationError
from tenure.util.plurals import a_type

_FORMS = "seconds as a number, a timedelta, or text such as '250ms', '30s', '20m', '1h30m', '2d', '1w'"
Duration = float | int | timedelta | str

LONGEST = 1e10
"""The longest duration in seconds, about 300 years."""

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}
_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d|w)")


def seconds(value: Duration, what: str = "duration") -> float:
    """The duration in seconds. The caller decides about zero and less."""
    match value:
        case bool():
            raise ConfigurationError(f"{what}: {value!r} is not a duration. Write {_FORMS}.")
        case int() | float():
            if isinstance(value, float) and not math.isfinite(value):
                raise ConfigurationError(f"{what}: {value!r} is not a finite number of seconds.")
            return _bounded(value, value, what)
        case timedelta():
            return _bounded(value.total_seconds(), value, what)
        case str():
            return _bounded(_from_text(value, what), value, what)
        case _:
            raise ConfigurationError(f"{what}: {value!r} is {a_type(value)}. Write {_FORMS}.")


def _bounded(length: float, value: Duration, what: str) -> float:
    """Refuse a duration that is far longer than any wait, and too long for some clocks and tables."""
    if abs(length) > LONGEST:
        shown = f"{value!r:.40}" if isinstance(value, str) else f"a {type(value).__name__}"
        raise ConfigurationError(f"{what}: {shown} is longer than 300 years. Write less, or leave it out.")
    return float(length)


def positive(value: Duration, what: str) -> float:
    """The duration in seconds. Refuses zero and less."""
    result = seconds(value, what)
    if result <= 0:
        raise ConfigurationError(f"{what}: {value!r} must be more than zero.")
    return result


def readable(value: float) -> str:
    """A human-readable duration: '80 ms', '1.3 s', '4 min 10 s', '3 h 5 min'."""
    if value < 0:
        return "-" + readable(-value)
    if value < 1:
        return f"{value * 1000:.0f} ms"
    if value < 60:  # noqa: PLR2004 - a minute
        return f"{value:.1f} s"
    minutes, rest = divmod(round(value), 60)
    if minutes < 60:  # noqa: PLR2004 - an hour
        return f"{minutes} min {rest} s" if rest else f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if minutes else f"{hours} h"


def written(value: float) -> str:
    """A duration as people write it in code: '30s', '1h30m', '250ms'."""
    left, parts = round(value * 1000), []
    for unit, size in (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000), ("ms", 1)):
        count, left = divmod(left, size)
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts) or "0"


def _from_text(text: str, what: str) -> float:
    compact = "".join(text.split()).lower()
    if re.fullmatch(r"\d+(\.\d+)?", compact):
        raise ConfigurationError(
            f"{what}: {text!r} has no unit. Write '{compact}s' for seconds or '{compact}m' for minutes."
        )
    total, end = 0.0, 0
    for part in _PART.finditer(compact):
        if part.start() != end:
            break
        total, end = total + float(part[1]) * _UNITS[part[2]], part.end()
    if not compact or end != len(compact):
        raise ConfigurationError(f"{what}: {text!r} is not a duration. Write {_FORMS}.")
    return total
