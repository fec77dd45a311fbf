"""Drawings of figures by day and by hour: a year as a heat map, and lines over time. SVG made on the server."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from markupsafe import Markup

from tenure.core.figures import COUNTS, DAY, NO_FIGURES, Figures, FiguresRow
from tenure.util.durations import readable

WEEKS = 53
_STEP, _SIZE, _LEFT, _TOP = 13, 11, 30, 16
SHADES = 4

_SQUARE = "M{x} {y}h11v11h-11z"
MARKS = {
    "succeeded": _SQUARE,
    "failed": _SQUARE + "M{x} {y}m4.5 2h2v4.5h-2zm0 5.5h2v2h-2z",  # an exclamation mark is cut out
    "lost": _SQUARE + "M{x} {y}m2.5 2.5h6v6h-6z",  # a hollow square
    "missed": _SQUARE + "M{x} {y}m1 8.5l7.5 -7.5h1.5v1.5l-7.5 7.5h-1.5z",  # crossed out
    "skipped": _SQUARE + "M{x} {y}m2 4.5h7v2h-7z",  # a dash
    "cancelled": _SQUARE + "M{x} {y}m2 4.5h7v2h-7z",
    "open": "M{x} {y}m3.5 3.5h4v4h-4z",  # a dot
    "": "M{x} {y}m4.5 4.5h2v2h-2z",
}
"""The square of a day by the worst that happened: told apart by its shape, whatever the colours are."""


def heat_map(days: Sequence[FiguresRow], now: datetime, address: Callable[[datetime], str]) -> Markup:
    """A year of days, the newest week at the right. Each leads to `address`, and its title says what happened."""
    figures = {round(row.start / DAY): row.figures for row in days}
    today = now.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    first = today - timedelta(days=today.weekday() + 7 * (WEEKS - 1))
    most = max((one.due for one in figures.values()), default=0)
    drawn: list[Markup] = []
    for place in range((today - first).days + 1):
        day = first + timedelta(days=place)
        x, y = _LEFT + place // 7 * _STEP, _TOP + place % 7 * _STEP
        if day.day == 1 and place:
            drawn.append(Markup('<text x="{}" y="11">{}</text>').format(x, f"{day:%b}"))
        one = figures.get(round(day.timestamp() / DAY), NO_FIGURES)
        path = Markup('<path class="d-{} q{}" fill-rule="evenodd" d="{}"><title>{}</title></path>').format(
            one.worst or "none",
            _shade(one.due, most),
            MARKS[one.worst].format(x=x, y=y),
            f"{day:%a %Y-%m-%d}: {told(one)}",
        )
        linked = Markup('<a href="{}" tabindex="-1">{}</a>').format(address(day), path)
        drawn.append(linked if one.due else path)
    for row, word in ((0, "Mon"), (2, "Wed"), (4, "Fri")):
        drawn.append(Markup('<text x="0" y="{}">{}</text>').format(_TOP + row * _STEP + 9, word))
    return Markup('<svg class="heat" viewBox="0 0 {wide} {high}" role="img" aria-label="{text}">{drawn}</svg>').format(
        wide=_LEFT + WEEKS * _STEP,
        high=_TOP + 7 * _STEP,
        text="The runs of each day of a year. The table of months says the same.",
        drawn=Markup("").join(drawn),
    )


def _shade(part: int, whole: int) -> int:
    """From 1 (few) to `SHADES`."""
    return max(1, math.ceil(SHADES * part / whole)) if whole else 1


def told(figures: Figures) -> str:
    """'23 succeeded, 1 failed; began at most 3.2 s late, took at most 4 min'."""
    counts = [f"{count:,} {word}" for word in COUNTS if (count := getattr(figures, word))]
    if not counts:
        return "no runs"
    late, took = figures.late.longest, figures.took.longest
    measures = [f"began at most {readable(late)} late"] if late is not None else []
    measures += [f"took at most {readable(took)}"] if took is not None else []
    return "; ".join(part for part in (", ".join(counts), ", ".join(measures)) if part)


def mark(word: str) -> Markup:
    """The square of a day, beside its word."""
    return Markup(
        '<svg class="mark" viewBox="0 0 11 11" width="11" height="11" aria-hidden="true">'
        '<path class="d-{} q4" fill-rule="evenodd" d="{}"/></svg>'
    ).format(word, MARKS[word].format(x=0, y=0))


# Lines over time

_WIDE, _HIGH, _AXIS, _BOTTOM = 720, 150, 56, 18


@dataclass(frozen=True, slots=True)
class Course:
    """Values over time, in seconds; None: there is none."""

    word: str
    values: tuple[float | None, ...]


@dataclass(frozen=True, slots=True)
class Mark:
    """Something that happened, such as a change of the job."""

    at: float
    text: str


def lines(
    times: Sequence[float], drawn: Sequence[Course], marks: Sequence[Mark], *, span: tuple[float, float]
) -> Markup:
    """Lines on a logarithmic scale, without a script."""
    every = [value for line in drawn for value in line.values if value is not None]
    if not every:
        return Markup("")
    low, high = math.log10(max(min(every), 1e-4)), math.log10(max(*every, 1e-4))
    low, high = math.floor(low), max(math.ceil(high), math.floor(low) + 1)

    def x(at: float) -> float:
        return _AXIS + (_WIDE - _AXIS) * (at - span[0]) / max(span[1] - span[0], 1.0)

    def y(value: float) -> float:
        return 6 + (_HIGH - 6 - _BOTTOM) * (high - math.log10(max(value, 1e-4))) / (high - low)

    parts = []
    for power in range(low, high + 1):
        at = y(10.0**power)
        parts.append(
            Markup(
                '<line class="grid" x1="{0}" x2="{1}" y1="{2:.1f}" y2="{2:.1f}"/><text x="0" y="{3:.1f}">{4}</text>'
            ).format(_AXIS, _WIDE, at, at + 4, readable(10.0**power))
        )
    parts += [
        Markup('<line class="change" x1="{0:.1f}" x2="{0:.1f}" y1="6" y2="{1}"><title>{2}</title></line>').format(
            x(one.at), _HIGH - _BOTTOM, one.text
        )
        for one in marks
        if span[0] <= one.at <= span[1]
    ]
    for number, line in enumerate(drawn):
        points = [(x(at), y(value)) for at, value in zip(times, line.values, strict=True) if value is not None]
        dots = "".join(f"M{px:.1f} {py:.1f}h.01" for px, py in points)
        path = "M" + "L".join(f"{px:.1f} {py:.1f}" for px, py in points)
        parts.append(
            Markup('<path class="line l{}" d="{}"/><path class="dots l{}" d="{}"/>').format(number, path, number, dots)
        )
    for part, text in ((0.0, span[0]), (1.0, span[1])):
        end = datetime.fromtimestamp(text, UTC)
        parts.append(
            Markup('<text x="{}" y="{}" text-anchor="{}">{}</text>').format(
                _AXIS if not part else _WIDE, _HIGH - 4, "start" if not part else "end", f"{end:%Y-%m-%d %H:%M} UTC"
            )
        )
    said = ", ".join(
        f"{line.word} up to {readable(max(v for v in line.values if v is not None))}"
        for line in drawn
        if any(v is not None for v in line.values)
    )
    return Markup('<svg class="chart" viewBox="0 0 {0} {1}" role="img" aria-label="{2}">{3}</svg>').format(
        _WIDE, _HIGH, said, Markup("").join(parts)
    )
