"""The part of a job's page that looks back: a year as a heat map, months as a table, and charts of two weeks.

It comes from the figures by hour and by day, never from the runs, and is made anew once in `LASTS` seconds.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from markupsafe import Markup

from tenure.core.figures import DAY, HOURS_KEPT, NO_FIGURES, Figures, FiguresRow
from tenure.core.records import ChangeRecord
from tenure.stores.base import Session
from tenure.util.instants import moment
from tenure.web.history_drawings import WEEKS, Course, Mark, heat_map, lines
from tenure.web.ledger_reads import LedgerReads

LASTS = 20.0
"""Seconds: the planner counts the runs about as often."""
OFTEN = 2 * HOURS_KEPT / DAY
"""A job with so many hours of runs in two weeks is drawn by hour, others by day."""


@dataclass(frozen=True, slots=True)
class Chart:
    """Lines over time: for a script as data, for all others as a drawing."""

    word: str
    drawing: Markup
    data: str


@dataclass(frozen=True, slots=True)
class JobHistory:
    """How the runs of a job went over a year."""

    days: tuple[FiguresRow, ...]
    now: datetime
    months: tuple[tuple[str, Figures], ...]
    """The newest first."""
    charts: tuple[Chart, ...]
    by: str
    """What a point of the charts is: 'hour' or 'day'."""

    def map(self, link: Callable[..., str], name: str) -> Markup:
        """The year; a day leads to its runs, which are those before its end."""

        def address(day: datetime) -> str:
            return f"{link('/job', name=name, before=(day + timedelta(days=1)).isoformat())}#runs"

        return heat_map(self.days, self.now, address)


def read(reads: LedgerReads, name: str) -> JobHistory:
    """The figures of a job."""
    return reads.read(("history", name), lambda session: _read(reads, session, name), lasts=LASTS)


def _read(reads: LedgerReads, session: Session, name: str) -> JobHistory:
    ledger, application = session.ledger, reads.application
    now = ledger.now()
    days = ledger.days(application, name, now - WEEKS * 7 * DAY, now)
    hours = ledger.hours(application, name, now - HOURS_KEPT, now)
    rows, by = (hours, "hour") if len(hours) >= OFTEN else (days, "day")
    changes = ledger.changes(application, name)
    span = (min((row.start for row in rows), default=now - DAY), now)
    return JobHistory(
        days=tuple(days), now=moment(now), months=_months(days), charts=_charts(rows, changes, span), by=by
    )


def _months(days: Sequence[FiguresRow]) -> tuple[tuple[str, Figures], ...]:
    months: dict[str, Figures] = {}
    for row in days:
        month = f"{moment(row.start):%Y-%m}"
        months[month] = months.get(month, NO_FIGURES) + row.figures
    return tuple(sorted(months.items(), reverse=True))


def _charts(
    rows: Sequence[FiguresRow], changes: Sequence[ChangeRecord], span: tuple[float, float]
) -> tuple[Chart, ...]:
    marks = [Mark(one.at, f"{one.what}{f' by {one.by}' if one.by else ''}") for one in changes if one.at >= span[0]]
    took, late = [row.figures.took for row in rows], [row.figures.late for row in rows]
    drawn = {
        "Duration": [
            Course("half took at most", tuple(one.percentile(0.5) for one in took)),
            Course("95 % took at most", tuple(one.percentile(0.95) for one in took)),
        ],
        "Lateness": [
            Course("began late by, at the median", tuple(one.percentile(0.5) for one in late)),
            Course("at most", tuple(one.longest for one in late)),
        ],
    }
    times = [row.start for row in rows]
    return tuple(
        Chart(word, lines(times, given, marks, span=span), _data(times, given, marks))
        for word, given in drawn.items()
        if any(value is not None for line in given for value in line.values)
    )


def _data(times: Sequence[float], drawn: Sequence[Course], marks: Sequence[Mark]) -> str:
    return json.dumps(
        {
            "times": times,
            "lines": [{"word": line.word, "values": line.values} for line in drawn],
            "marks": [{"at": mark.at, "text": mark.text} for mark in marks],
        },
        separators=(",", ":"),
    )
