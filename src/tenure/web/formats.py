"""How the page writes times, durations and texts of others."""

from __future__ import annotations

import json
import unicodedata
from datetime import datetime
from typing import Any

from markupsafe import Markup

from tenure.core.arguments import plain
from tenure.util.durations import readable
from tenure.util.last_line import last_line
from tenure.util.printable import spelt

LONGEST = 300
"""Characters of a text in a table."""
_DAY = 86400


def visible(value: object) -> object:
    """Spells control characters out in everything that a template prints. Markup is made by this package alone."""
    if value is None:
        return ""
    return value if isinstance(value, Markup) else spelt(value)


def field(value: object) -> Markup:
    """What a field of a form holds, and sends back as it is: a character that is not visible is a reference to it.

    What no name and no form can contain is spelt out: a browser would make another character of it.
    """
    return Markup("").join(map(_in_field, "" if value is None else str(value)))


def _in_field(character: str) -> Markup | str:
    if character.isprintable() or unicodedata.category(character) in {"Cc", "Cs"}:
        return spelt(character)
    return Markup(f"&#{ord(character)};")  # noqa: S704 - digits


def exact(at: datetime) -> str:
    """'Thu 2026-11-19 03:00:00 KST', with milliseconds if there are any."""
    part = f".{at.microsecond // 1000:03}" if at.microsecond else ""
    return f"{at:%a %Y-%m-%d %H:%M:%S}{part} {at.tzname() or ''}".rstrip()


def day(at: datetime) -> str:
    """'Thu 2026-11-19 KST'."""
    return f"{at:%a %Y-%m-%d} {at.tzname() or ''}".rstrip()


def ago(at: datetime | None, now: datetime) -> Markup | str:
    """'3 min ago' or 'in 2 h 5 min', with the exact time on hover and on focus."""
    if at is None:
        return ""
    away = (at - now).total_seconds()
    if abs(away) < 1:
        return _time(at, "now")
    return _time(at, f"in {_long(away)}" if away > 0 else f"{_long(-away)} ago")


def clock(at: datetime | None) -> Markup | str:
    """The exact time, with its zone."""
    if at is None:
        return ""
    return Markup('<time datetime="{}">{}</time>').format(at.isoformat(), exact(at))


def _time(at: datetime, text: str) -> Markup:
    return Markup('<time class="rel" datetime="{}" data-at="{}" tabindex="0">{}</time>').format(
        at.isoformat(), exact(at), text
    )


def _long(seconds: float) -> str:
    if seconds < 60:  # noqa: PLR2004 - a minute
        return f"{seconds:.0f} s"
    days, rest = divmod(seconds, _DAY)
    if days >= 2:  # noqa: PLR2004 - from two days on, hours do not matter
        return f"{days:.0f} days"
    return readable(seconds if seconds < _DAY else days * _DAY + rest // 3600 * 3600)


def took(seconds: float | None) -> str:
    """A duration; nothing for None."""
    return "" if seconds is None else readable(seconds)


def percent(part: float | None) -> str:
    """'99.9 %': only all of them are 100 %, and only none are 0 %."""
    if part is None:
        return ""
    if part in {0.0, 1.0}:
        return f"{part:.0%}".replace("%", " %")
    return f"{min(max(part * 100, 0.1), 99.9):.1f} %"


def brief(text: str | None, longest: int = LONGEST) -> str:
    """The first part of a long text."""
    if text is None:
        return ""
    return text if len(text) <= longest else f"{text[: longest - 1]}…"


def first_sentence(text: str) -> str:
    """'Every day at 03:00 Asia/Seoul' of an explanation in several sentences."""
    return brief(text.split(". ", maxsplit=1)[0].rstrip(".").split(" of elapsed time, counted")[0])


def option(value: object) -> str:
    """The value of an option."""
    match value:
        case None:
            return "none"
        case bool():
            return "yes" if value else "no"
        case float():
            return readable(value)
        case tuple() | list():
            return ", ".join(map(option, value)) or "none"
        case _:
            return brief(str(value))


def as_json(value: object) -> str:
    """Arguments, or a result, as text."""
    return json.dumps(plain(value), indent=2, ensure_ascii=False, default=str)


FILTERS: dict[str, Any] = {
    "field": field,
    "exact": exact,
    "day": day,
    "ago": ago,
    "clock": clock,
    "took": took,
    "brief": brief,
    "percent": percent,
    "first_sentence": first_sentence,
    "as_json": as_json,
    "option": option,
    "last_line": last_line,
}
