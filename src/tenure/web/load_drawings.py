"""The load ahead as drawings: beginnings by queue, the forecast beside the slots of the nodes, and herds.

As all drawings it is SVG made on the server, of attributes and classes only, and says in words what it shows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, tzinfo

from markupsafe import Markup

from tenure.core.load import MINUTE, MINUTES, QueueLoad, together
from tenure.core.load_outlook import QueueOutlook
from tenure.util.instants import moment
from tenure.util.plurals import counted
from tenure.web.formats import brief, visible

SHADES = 4
"""Queues that have a shade of their own; further ones share the last."""
BIN = 2
"""Minutes of a stroke: it shows the busier one."""
_LEFT, _RIGHT, _TOP = 40.0, 994.0, 18.0
_HIGH = 130.0
_STROKE = (_RIGHT - _LEFT) / (MINUTES // BIN)
_EVERY_HOURS = 2
_NEAR_END = 0.85


def shaded(queues: Sequence[QueueLoad]) -> list[QueueLoad]:
    """The queues as they are drawn: the last shade is for all further ones."""
    if len(queues) <= SHADES:
        return list(queues)
    rest = queues[SHADES - 1 :]
    return [*queues[: SHADES - 1], together(f"{len(rest)} further queues", rest)]


def beginnings(queues: Sequence[QueueLoad], start: float, zone: tzinfo) -> Markup:
    """How many runs may begin in each minute, one queue on top of the other."""
    whole = together("", queues)
    high, words = _scale(max(whole.starts)), []
    paths: list[list[str]] = [[] for _ in queues]
    for stroke in range(MINUTES // BIN):
        minute = max(range(stroke * BIN, (stroke + 1) * BIN), key=whole.starts.__getitem__)
        x, y = _LEFT + stroke * _STROKE, _TOP + _HIGH
        for path, queue in zip(paths, queues, strict=True):
            if tall := _HIGH * queue.starts[minute] / high:
                y -= tall
                path.append(f"M{x:.1f} {y:.1f}h{_STROKE:.2f}v{tall:.1f}h-{_STROKE:.2f}z")
    drawn = [*_grid(start, zone, high)]
    drawn += [
        Markup('<path class="queue q{}" d="{}"/>').format(place + 1, "".join(path)) for place, path in enumerate(paths)
    ]
    if whole.total:
        busiest = whole.busiest
        at = moment(start + busiest * MINUTE, zone)
        drawn.append(_label(busiest, f"{at:%H:%M}: {whole.starts[busiest]:,}", "peak"))
        words.append(f"the most at {at:%a %H:%M %Z}: {whole.starts[busiest]:,}")
    text = ", ".join([f"{whole.total:,} beginnings in 24 h", *words])
    return _svg(drawn, f"{text}. The table of hours says the same.")


def forecast(one: QueueOutlook, start: float, zone: tzinfo) -> Markup:
    """How many runs go on at a time, beside how many slots there are. What does not fit is told apart by a gap above
    the line of the slots, and is labelled."""
    busy, slots = one.load.busy, one.slots
    high = _scale(max(1.0, slots, *busy))
    within: list[str] = []
    beyond: list[str] = []
    level = _TOP + _HIGH * (1 - slots / high)
    for stroke in range(MINUTES // BIN):
        need = max(busy[stroke * BIN : (stroke + 1) * BIN])
        if need <= 0:
            continue
        x, tall = _LEFT + stroke * _STROKE, max(_HIGH * min(need, slots) / high, 0.6)
        within.append(f"M{x:.1f} {_TOP + _HIGH - tall:.1f}h{_STROKE:.2f}v{tall:.1f}h-{_STROKE:.2f}z")
        if need > slots and (more := _HIGH * (need - slots) / high - 2) > 0:
            beyond.append(f"M{x:.1f} {level - 2 - more:.1f}h{_STROKE:.2f}v{more:.1f}h-{_STROKE:.2f}z")
    drawn = [*_grid(start, zone, high)]
    drawn.append(Markup('<path class="within" d="{}"/>').format("".join(within)))
    drawn.append(Markup('<path class="beyond" d="{}"/>').format("".join(beyond)))
    drawn.append(
        Markup(
            '<line class="slots" x1="{0}" x2="{1}" y1="{2:.1f}" y2="{2:.1f}"/>'
            '<text class="slots" x="{1}" y="{3:.1f}" text-anchor="end">{4}</text>'
        ).format(_LEFT, _RIGHT, level, level - 4 if level > _TOP else level + 14, counted(slots, "slot"))
    )
    if one.longest > 0:
        drawn.append(_label(max(range(MINUTES), key=busy.__getitem__), "more than fits", "late"))
    text = f"By the forecast at most {one.most:.1f} runs go on at a time, and the nodes have {counted(slots, 'slot')}"
    return _svg(drawn, f"{text}. The table of hours says the same.")


def herd(before: int, after: Sequence[int]) -> Markup:
    """A herd in one minute, and beside it the same jobs with the spread, minute by minute."""
    high, wide, tall = max(before, 1), 8.0, 60.0
    step = min(wide + 2, 300.0 / max(len(after), 1))
    drawn = [
        Markup('<rect class="herd" x="4" y="14" width="{}" height="{}"/>').format(wide, tall),
        Markup('<text x="4" y="10">{}</text>').format(f"{before:,} in one minute"),
    ]
    left = 130.0
    for place, count in enumerate(after):
        if count:
            part = max(tall * count / high, 0.8)
            drawn.append(
                Markup('<rect class="spread" x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{:.1f}"/>').format(
                    left + place * step, 14 + tall - part, max(step - 1, 1.0), part
                )
            )
    most = max(after, default=0)
    drawn += [
        Markup('<text x="{}" y="10">at most {:,} in one minute, over {} minutes</text>').format(left, most, len(after)),
        Markup('<line class="grid" x1="0" x2="440" y1="{0}" y2="{0}"/>').format(14 + tall),
    ]
    text = f"Without the spread {before:,} begin in one minute, with it at most {most:,}"
    return Markup(
        '<svg class="load herd-chart" viewBox="0 0 440 78" role="img" aria-label="{0}"><title>{0}</title>{1}</svg>'
    ).format(text, Markup("").join(drawn))


def shade(place: int) -> Markup:
    """The shade of a queue, beside its name."""
    return Markup(
        '<svg class="mark load" viewBox="0 0 11 11" width="11" height="11" aria-hidden="true">'
        '<rect class="queue q{}" x="0" y="0" width="11" height="11"/></svg>'
    ).format(place)


def legend(queues: Sequence[QueueLoad]) -> list[tuple[Markup, str]]:
    """What each shade stands for."""
    return [(shade(place + 1), str(visible(brief(queue.queue, 40)))) for place, queue in enumerate(queues)]


def _svg(drawn: Sequence[Markup], text: str) -> Markup:
    return Markup(
        '<svg class="load" viewBox="0 0 1000 {0}" role="img" aria-label="{1}"><title>{1}</title>{2}</svg>'
    ).format(int(_TOP + _HIGH + 20), text, Markup("").join(drawn))


def _x(minute: float) -> float:
    return _LEFT + minute / MINUTES * (_RIGHT - _LEFT)


def _label(minute: int, text: str, kind: str) -> Markup:
    x = _x(minute)
    late = x > _LEFT + _NEAR_END * (_RIGHT - _LEFT)
    return Markup('<text class="{}" x="{:.1f}" y="12" text-anchor="{}">{}</text>').format(
        kind, x + (2 if late else -2), "end" if late else "start", text
    )


def _grid(start: float, zone: tzinfo, high: float) -> Iterator[Markup]:
    for part in (0.0, 0.5, 1.0):
        y = _TOP + _HIGH * (1 - part)
        yield Markup(
            '<line class="grid" x1="{0}" x2="{1}" y1="{2:.1f}" y2="{2:.1f}"/>'
            '<text x="{3}" y="{4:.1f}" text-anchor="end">{5}</text>'
        ).format(_LEFT, _RIGHT, y, _LEFT - 5, y + 4, f"{high * part:,.0f}" if high * part % 1 == 0 else "")
    for minute, at in _whole_hours(start, zone):
        if at.hour % _EVERY_HOURS == 0:
            yield Markup(
                '<line class="{0}" x1="{1:.1f}" x2="{1:.1f}" y1="{2}" y2="{3}"/>'
                '<text x="{1:.1f}" y="{4}" text-anchor="middle">{5}</text>'
            ).format(
                "day" if at.hour == 0 else "grid",
                _x(minute),
                _TOP,
                _TOP + _HIGH,
                _TOP + _HIGH + 15,
                f"{at:%a}" if at.hour == 0 else f"{at:%H:%M}",
            )


def _whole_hours(start: float, zone: tzinfo) -> Iterator[tuple[int, datetime]]:
    for minute in range(1, MINUTES):
        at = moment(start + minute * MINUTE, zone)
        if at.minute == 0:
            yield minute, at


def _scale(most: float) -> float:
    """The end of the axis: a round number, at least 2, of which half is whole."""
    for power in range(12):
        for part in (2, 4, 6, 10):
            if part * 10**power >= most:
                return float(part * 10**power)
    return most
