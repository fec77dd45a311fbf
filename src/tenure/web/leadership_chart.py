"""The chart of an election: a lane for each node, a bar for each term, and in red the times in which no node led.

As all drawings it is SVG made on the server, of attributes and classes only, and says in words what it shows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from markupsafe import Markup

from tenure.core.cluster import EPOCH_BITS, TermRecord
from tenure.util.durations import readable
from tenure.util.plurals import counted
from tenure.web.formats import brief, exact, visible

LANES = 12
"""Nodes that have a lane of their own; earlier ones share the last."""
_LEFT, _RIGHT, _LANE, _TOP = 150.0, 960.0, 26.0, 22.0
_LEAST = 2.5
"""Width of the shortest bar."""
_APART = 74.0
"""Between the words of two gaps."""
_DIGIT = 7.5
"""Width of a digit of a term's number."""
_MINUTES = 10
_HOURS, _DAYS = timedelta(hours=2), timedelta(days=2)


@dataclass(frozen=True, slots=True)
class _Scale:
    since: datetime
    until: datetime

    def x(self, at: datetime) -> float:
        whole = (self.until - self.since).total_seconds() or 1.0
        part = min(max((at - self.since).total_seconds() / whole, 0.0), 1.0)
        return _LEFT + part * (_RIGHT - _LEFT)


def gap_text(record: TermRecord) -> str:
    """'at most 214 ms'; '' if the first term had no gap before it."""
    if record.gap is None:
        return ""
    return ("at most " if record.gap_at_most else "") + readable(record.gap.total_seconds())


def epoch_of(number: int) -> int:
    """The epoch in which a term was granted: its number begins with it."""
    return number >> EPOCH_BITS


def leadership(terms: Sequence[TermRecord], since: datetime, until: datetime, *, led: bool) -> Markup:
    """The terms of one election, newest first, from `since` to `until`. `led`: a node leads now."""
    scale, oldest_first = _Scale(since, until), [*reversed(terms)]
    lanes = _lanes(oldest_first)
    bottom = _TOP + _LANE * max(len(set(lanes.values())), 1)
    drawn = [*_axis(scale, bottom), *_names(lanes)]
    drawn += [_bar(record, scale, lanes[record.label], until) for record in oldest_first]
    drawn += _gaps(oldest_first, scale, bottom, led=led)
    drawn += _epochs(oldest_first, scale, bottom)
    return Markup(
        '<svg class="terms" viewBox="0 0 {wide} {high}" role="img" aria-label="{text}">'
        "<title>{text}</title>{drawn}</svg>"
    ).format(wide=int(_RIGHT) + 8, high=int(bottom) + 22, text=_told(oldest_first), drawn=Markup("").join(drawn))


def _told(terms: Sequence[TermRecord]) -> str:
    nodes = len({record.label for record in terms})
    longest = max((record.gap for record in terms if record.gap is not None), default=None)
    words = f"{counted(len(terms), 'term')} of {counted(nodes, 'node')}"
    return words if longest is None else f"{words}; the longest gap {readable(longest.total_seconds())}"


def _lanes(terms: Sequence[TermRecord]) -> dict[str, int]:
    labels = list(dict.fromkeys(record.label for record in reversed(terms)))
    return {
        label: min(place, LANES - 1) for place, label in enumerate(sorted(labels[: LANES - 1]) + labels[LANES - 1 :])
    }


def _names(lanes: dict[str, int]) -> list[Markup]:
    names: dict[int, list[str]] = {}
    for label, lane in lanes.items():
        names.setdefault(lane, []).append(label)
    return [
        Markup('<text class="who" x="{}" y="{:.1f}" text-anchor="end">{}</text>').format(
            _LEFT - 8,
            _TOP + lane * _LANE + 17,
            visible(brief(labels[0], 20)) if len(labels) == 1 else f"{len(labels)} earlier nodes",
        )
        for lane, labels in names.items()
    ]


def _axis(scale: _Scale, bottom: float) -> list[Markup]:
    drawn = []
    span = scale.until - scale.since
    days, every = span > _DAYS, _MINUTES if span <= _HOURS else 180
    at = scale.since.replace(minute=0, second=0, microsecond=0)
    while at < scale.until:
        minutes = at.hour * 60 + at.minute
        if at > scale.since and minutes % (1440 if days else every) == 0:
            drawn.append(
                Markup(
                    '<line class="grid" x1="{0:.1f}" y1="{1}" x2="{0:.1f}" y2="{2}"/>'
                    '<text class="hour" x="{0:.1f}" y="{3}" text-anchor="middle">{4}</text>'
                ).format(scale.x(at), _TOP, bottom, bottom + 15, f"{at:%a %d}" if days else f"{at:%H:%M}")
            )
        at = datetime.fromtimestamp(at.timestamp() + _MINUTES * 60, at.tzinfo)  # of elapsed time, in the same zone
    return drawn


def _bar(record: TermRecord, scale: _Scale, lane: int, until: datetime) -> Markup:
    start, end = scale.x(record.began_at), scale.x(record.ended_at or until)
    wide = max(end - start, _LEAST)
    number = str(record.number)
    ended = f"ended {exact(record.ended_at)}: {record.ended_by or 'not said'}" if record.ended_at else "goes on"
    told = f"Term {number}, {record.label}: began {exact(record.began_at)}: {record.began_by}; {ended}"
    inside = Markup("")
    if len(number) * _DIGIT + 8 <= wide:
        inside = Markup('<text class="number" x="{:.1f}" y="{:.1f}">{}</text>').format(
            start + 4, _TOP + lane * _LANE + 17, number
        )
    return Markup(
        '<g><title>{}</title><rect class="{}" x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{}" rx="2"/>{}</g>'
    ).format(
        visible(told),
        "term" if record.ended_at else "term now",
        start,
        _TOP + lane * _LANE + 3,
        wide,
        _LANE - 6,
        inside,
    )


def _gaps(terms: Sequence[TermRecord], scale: _Scale, bottom: float, *, led: bool) -> list[Markup]:
    gaps = [
        (record.began_at - record.gap, record.began_at, gap_text(record))
        for record in terms
        if record.gap is not None and record.began_at > scale.since
    ]
    if not led and terms and terms[-1].ended_at is not None:
        since = terms[-1].ended_at
        gaps.append((since, scale.until, f"no leader for {readable((scale.until - since).total_seconds())}"))
    drawn, free = [], _LEFT
    for start, end, text in gaps:
        x, wide = scale.x(start), max(scale.x(end) - scale.x(start), _LEAST)
        words = Markup("")
        if x >= free or end == scale.until:
            late = x > _RIGHT - 2 * _APART
            words = Markup('<text class="gap" x="{:.1f}" y="14" text-anchor="{}">{}</text>').format(
                min(x + (wide if late else 0), _RIGHT), "end" if late else "start", text
            )
            free = x + _APART
        drawn.append(
            Markup(
                '<g><title>{}</title><rect class="gap" x="{:.1f}" y="{}" width="{:.1f}" height="{:.1f}"/>{}</g>'
            ).format(f"No leader until {exact(end)}: {text}", x, _TOP - 3, wide, bottom - _TOP + 3, words)
        )
    return drawn


def _epochs(terms: Sequence[TermRecord], scale: _Scale, bottom: float) -> list[Markup]:
    drawn, epoch = [], None
    for record in terms:
        new = epoch_of(record.number)
        if epoch is not None and new != epoch and record.began_at > scale.since:
            drawn.append(
                Markup(
                    "<g><title>Epoch {0} began {1}: a restore or a failover of the database may have lost terms</title>"
                    '<line class="epoch" x1="{2:.1f}" y1="{3}" x2="{2:.1f}" y2="{4}"/></g>'
                ).format(new, exact(record.began_at), scale.x(record.began_at), _TOP - 3, bottom)
            )
        epoch = new
    return drawn
