"""What the form for a backfill asks for, and the due times that it would run: people see these before they confirm."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, tzinfo

from tenure.core.backfills import DEFAULT_INCLUDE, Include, included
from tenure.jobs.backfills import at_once_of
from tenure.jobs.operations import backfillable, point
from tenure.stores.base import Session
from tenure.util.instants import moment
from tenure.web.ledger_reads import LedgerReads, check_name
from tenure.web.page_request import Refused, whole
from tenure.web.times import in_zone

INCLUDES = {
    "missing,lost": "those that never ran or were lost",
    "missing,lost,failed": "those that never ran, were lost or failed",
    "missing": "those that never ran",
    "failed": "those that failed or were lost",
}
"""The choices of the form: which due times a backfill takes, in words."""


@dataclass(frozen=True, slots=True)
class BackfillForm:
    """A form as it was sent."""

    job: str
    since: str
    until: str
    include: tuple[Include, ...]
    at_once: int | None
    even_forgotten: bool
    why: str

    @property
    def words(self) -> str:
        """`include` as the form sends it."""
        return ",".join(self.include)

    @classmethod
    def of(cls, job: str, form: Mapping[str, str]) -> BackfillForm:
        """Read the fields."""
        check_name(job)
        since, at_once = form.get("since", "").strip(), form.get("at_once", "").strip()
        if not since:
            raise Refused(400, "Since when?", "since: it is missing. Write from when on due times are to run.")
        return cls(
            job=job,
            since=since,
            until=form.get("until", "").strip() or "-0s",
            include=included(form.get("include", ",".join(DEFAULT_INCLUDE)).split(",")),
            at_once=at_once_of(whole(at_once, "at_once")) if at_once else None,
            even_forgotten=bool(form.get("even_forgotten")),
            why=form.get("why", "").strip(),
        )


@dataclass(frozen=True, slots=True)
class BackfillOffer:
    """What a backfill would run if it were created now."""

    form: BackfillForm
    since: datetime
    until: datetime
    due: tuple[datetime, ...]
    forgotten: int
    """How many due times may have run before retention removed their runs. `due` has them only on request."""


def offered(reads: LedgerReads, form: BackfillForm) -> BackfillOffer:
    """The due times that this form asks for, without running any."""
    return reads.read(("backfill offer", form), lambda session: _offered(reads, session, form))


def _offered(reads: LedgerReads, session: Session, form: BackfillForm) -> BackfillOffer:
    ledger, lookup = session.ledger, reads.lookup
    row, now = lookup.row(ledger, form.job), ledger.now()
    where = lookup.zone(ledger, row)
    since, until = (_point(given, where, now, what) for given, what in ((form.since, "since"), (form.until, "until")))
    span = since, until, now
    found = backfillable(ledger, row, *span, even_forgotten=form.even_forgotten, include=form.include)
    due = tuple(moment(at, where) for at in found.due)
    return BackfillOffer(form, moment(since, where), moment(until, where), due, found.forgotten)


def _point(given: str, where: tzinfo, now: float, what: str) -> float:
    return point(given if given.startswith("-") else in_zone(given, where, what), now, what)
