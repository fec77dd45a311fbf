"""Drawings as SVG, made on the server: attributes and classes only, no style, no script.

Each drawing says in words what it shows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from itertools import pairwise

from markupsafe import Markup

from tenure.core.messages import StripRun
from tenure.util.durations import readable
from tenure.views import RunView

BARS = 60
ATTEMPTS = 20
"""Attempts of a timeline."""
_STEP, _HIGH = 4, 20

SHAPES = {
    "succeeded": "M{x} 20v-11h3v11z",
    "failed": "M{x} 20v-5h3v5zM{x} 13v-13h3v13z",  # an exclamation mark
    "lost": "M{x} 20v-20h3v20zm1 -1h1v-18h-1z",  # a hollow bar
    "cancelled": "M{x} 11v-3h3v3z",  # a dash
    "skipped": "M{x} 20v-3h3v3z",  # a stump
    "running": "M{x} 20v-5h3v5zM{x} 14v-3h3v3z",  # growing
    "waiting": "M{x} 20v-2h3v2zM{x} 16v-2h3v2z",
    "pending": "M{x} 20v-2h3v2z",
    "interrupted": "M{x} 20v-5h3v5zM{x} 13v-5h3v5z",  # a bar with a cut
    "not yet": "M{x} 20v-3h3v3zM{x} 15v-1h3v1z",
}
"""The bar of each state: told apart by its shape, whatever the colours are."""


def strip(runs: Sequence[StripRun]) -> Markup:
    """The outcomes of the last runs, the newest at the right: one path for each state."""
    shown = list(reversed(runs[:BARS]))
    empty = BARS - len(shown)
    paths: dict[str, list[str]] = {}
    for place, run in enumerate(shown):
        paths.setdefault(run.state.value, []).append(SHAPES[run.state.value].format(x=(empty + place) * _STEP))
    counts = Counter(run.state.value for run in shown)
    text = ", ".join(f"{count} {state}" for state, count in counts.most_common()) or "none yet"
    drawn = [Markup('<path class="s-{}" d="{}"/>').format(state, "".join(parts)) for state, parts in paths.items()]
    return Markup(
        '<svg class="strip" viewBox="0 0 {wide} {high}" width="{wide}" height="{high}" role="img" aria-label="{text}">'
        '<title>{text}</title><path class="base" d="M0 {high}h{empty}v-1h-{empty}z"/>{drawn}</svg>'
    ).format(
        wide=BARS * _STEP,
        high=_HIGH,
        text=f"Last {BARS} runs: {text}",
        empty=empty * _STEP,
        drawn=Markup("").join(drawn),
    )


def legend(state: str) -> Markup:
    """The bar of a state, beside its word."""
    return Markup(
        '<svg class="mark" viewBox="0 0 3 20" width="3" height="20" aria-hidden="true">'
        '<path class="s-{}" d="{}"/></svg>'
    ).format(state.replace(" ", "-"), SHAPES.get(state, SHAPES["pending"]).format(x=0))


_LEFT, _RIGHT, _LEAST = 4.0, 716.0, 96.0
"""The ends of a timeline, and the shortest stretch that has room for its words."""


def timeline(run: RunView, now: datetime) -> Markup:
    """From the due time to the end: when it might begin, was claimed, began and ended.

    Each stretch is drawn in proportion, but none shorter than its words. Several attempts have a line each.
    """
    if len(run.attempts) > 1:
        return _attempts(run, now)
    moments = _moments(run, now)
    lengths = [(later[1] - earlier[1]).total_seconds() for earlier, later in pairwise(moments)]
    whole, room = sum(lengths) or 1.0, _RIGHT - _LEFT - _LEAST * len(lengths)
    places = [_LEFT]
    for length in lengths:
        places.append(places[-1] + _LEAST + room * length / whole)
    drawn = [Markup('<line class="axis" x1="{}" y1="34" x2="{}" y2="34"/>').format(_LEFT, places[-1])]
    for (word, _), length, (x, end) in zip(moments[:-1], lengths, pairwise(places), strict=True):
        body = word == "began"
        kind, y, high = (f"body s-{run.state}", 28, 12) if body else ("wait", 32, 4)
        drawn += [
            Markup('<rect class="{}" x="{:.1f}" y="{}" width="{:.1f}" height="{}"/>').format(kind, x, y, end - x, high),
            Markup('<text class="took" x="{:.1f}" y="56" text-anchor="middle">{}</text>').format(
                (x + end) / 2, readable(length)
            ),
        ]
    for x, (word, _) in zip(places, moments, strict=True):
        anchor = "start" if x == _LEFT else "end" if x == places[-1] else "middle"
        drawn += [
            Markup('<line class="tick" x1="{0:.1f}" y1="24" x2="{0:.1f}" y2="44"/>').format(x),
            Markup('<text x="{:.1f}" y="16" text-anchor="{}">{}</text>').format(x, anchor, word),
        ]
    later = [f"{word} {readable(length)} later" for (word, _), length in zip(moments[1:], lengths, strict=True)]
    return Markup(
        '<svg class="timeline" viewBox="0 0 720 62" role="img" aria-label="{0}"><title>{0}</title>{1}</svg>'
    ).format(", ".join([moments[0][0], *later]), Markup("").join(drawn))


_LABEL, _LANE = 110.0, 22.0


def _attempts(run: RunView, now: datetime) -> Markup:
    """A line for each attempt, from the due time to the end: thin while it was claimed, thick while it ran."""
    shown = run.attempts[-ATTEMPTS:]
    since = min([run.scheduled_for, *(one.claimed_at for one in shown if one.claimed_at)])
    until = max([run.finished_at or now, since])
    whole = (until - since).total_seconds() or 1.0

    def x(at: datetime) -> float:
        return _LABEL + (at - since).total_seconds() / whole * (_RIGHT - _LABEL)

    drawn = []
    for place, one in enumerate(shown):
        y = place * _LANE
        began, ended = one.started_at or one.claimed_at, one.finished_at or until
        drawn.append(
            Markup('<text x="{}" y="{:.0f}" text-anchor="end">attempt {}</text>').format(_LABEL - 8, y + 15, one.number)
        )
        if one.claimed_at is not None and began is not None:
            drawn += [
                Markup('<rect class="wait" x="{:.1f}" y="{:.0f}" width="{:.1f}" height="4"/>').format(
                    x(one.claimed_at), y + 9, max(x(began) - x(one.claimed_at), 1.0)
                ),
                Markup(
                    '<g><title>{}</title><rect class="body s-{}" x="{:.1f}" y="{:.0f}" width="{:.1f}" height="12"/></g>'
                ).format(
                    f"attempt {one.number}: {one.outcome}",
                    one.outcome.replace(" ", "-"),
                    x(began),
                    y + 5,
                    max(x(ended) - x(began), 2.0),
                ),
            ]
    high = len(shown) * _LANE
    drawn += [
        Markup('<line class="axis" x1="{0}" y1="{1:.0f}" x2="{2}" y2="{1:.0f}"/>').format(_LABEL, high + 4, _RIGHT),
        Markup('<text class="took" x="{}" y="{:.0f}">due</text>').format(_LABEL, high + 18),
        Markup('<text class="took" x="{}" y="{:.0f}" text-anchor="end">{}, {} later</text>').format(
            _RIGHT, high + 18, "now" if run.finished_at is None else "ended", readable(whole)
        ),
    ]
    text = "; ".join(f"attempt {one.number} {one.outcome}" for one in shown)
    return Markup(
        '<svg class="timeline" viewBox="0 0 720 {0:.0f}" role="img" aria-label="{1}"><title>{1}</title>{2}</svg>'
    ).format(high + 24, text, Markup("").join(drawn))


def share(done: float, total: float | None) -> Markup:
    """How far something is; nothing if it is not known how far it goes."""
    if not total or total <= 0:
        return Markup("")
    part = min(max(done / total, 0.0), 1.0)
    return Markup(
        '<svg class="bar wide-bar" viewBox="0 0 240 10" width="240" height="10" role="img" aria-label="{}">'
        '<rect class="room" x="0" y="0" width="240" height="10"/>'
        '<rect class="used" x="0" y="0" width="{:.0f}" height="10"/></svg>'
    ).format(f"{part:.0%}", 240 * part)


def _moments(run: RunView, now: datetime) -> list[tuple[str, datetime]]:
    moments = [("due", run.scheduled_for)]
    if run.due_at != run.scheduled_for:
        moments.append(("might begin", run.due_at))
    if run.state not in {"pending", "waiting"}:
        known = (("claimed", run.claimed_at), ("began", run.started_at))
        moments += [(word, at) for word, at in known if at is not None]
    moments.append(("now", now) if run.finished_at is None else ("ended", run.finished_at))
    return sorted(moments, key=lambda moment: moment[1])


def bar(part: int, whole: int) -> Markup:
    """How much of something is used."""
    if whole <= 0:
        return Markup("")
    width = round(60 * min(max(part, 0), whole) / whole)
    return Markup(
        '<svg class="bar" viewBox="0 0 60 8" width="60" height="8" role="img" aria-label="{}">'
        '<rect class="room" x="0" y="0" width="60" height="8"/>'
        '<rect class="used" x="0" y="0" width="{}" height="8"/></svg>'
    ).format(f"{part} of {whole}", width)
