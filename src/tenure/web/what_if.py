"""What-if on the page and in the API: what is asked, within bounds, and the answer. Nothing is written."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, tzinfo

from tenure.core.job_options import rules
from tenure.core.load import LoadJob, QueueLoad
from tenure.core.records import Instant, Rules
from tenure.core.trigger_text import trigger_from
from tenure.core.what_if import OutageForecast, OutageOfJob, Rest, WhatIfSchedule, outage, schedule
from tenure.errors import ConfigurationError
from tenure.jobs.operations import amended
from tenure.util.durations import readable, seconds
from tenure.util.instants import moment
from tenure.web.load_counter import PATIENCE, CountedLoad, Pacer

STEPS = 200_000
"""Steps of one question: ten thousand jobs and their due times in an outage of a day."""
LONGEST_OUTAGE = 31 * 86400.0
FARTHEST = 10 * 366 * 86400.0
"""Seconds from now."""
ROWS = 200
"""Jobs of an outage that are listed: those that lose the most first. The page shows the first `SHOWN`."""
SHOWN = 50
TEXT = 200
"""Characters of a field."""
EXAMPLES = (300.0, 3600.0, 86400.0, 3 * 86400.0)
"""Lengths of outages that show what `missed` and `grace` do."""
NEW = "what-if"
"""The name of a job that does not exist."""
_HOUR = 60
_OPTIONS = ("queue", "spread", "missed", "grace", "overlap")

OVERLAP = {
    "skip": "A due time that comes while {runs} is skipped.",
    "wait": "A due time that comes while {runs} waits for its turn.",
    "replace": "A due time that comes while {runs} cancels the oldest of them.",
    "allow": "Runs may overlap: there is no limit.",
}
"""What each policy does."""


@dataclass(frozen=True, slots=True)
class AskedSchedule:
    """A schedule, as it is asked about."""

    expr: str
    tz: str
    job: str
    """The job whose schedule it replaces; '' for a new one."""
    options: tuple[tuple[str, str], ...]

    @classmethod
    def of(cls, given: Mapping[str, str]) -> AskedSchedule | None:
        """What a request asks; None if it asks for no schedule."""
        words = {word: given.get(word, "").strip() for word in ("expr", "tz", "job", *_OPTIONS)}
        _check(words)
        if not words["expr"]:
            return None
        options = tuple((word, words[word]) for word in _OPTIONS if words[word])
        return cls(words["expr"], words["tz"], words["job"], options)


@dataclass(frozen=True, slots=True)
class ScheduleAnswer:
    """What a schedule would do."""

    job: str
    """The job that it replaces; '' for a new one."""
    rules: Rules
    found: WhatIfSchedule
    before: QueueLoad | None
    """The beginnings of that job by its schedule now."""
    others: QueueLoad
    """The beginnings of all other jobs."""
    start: Instant
    examples: tuple[tuple[float, OutageOfJob | None], ...]
    """Outages of these lengths that begin with the first due time, and what becomes of the due times in them."""
    quiet: tuple[int, int, int] | None
    """Of the hours in which it is due: the quietest minute, how many others begin in it at most; and how many others
    begin at most in the minutes in which it is due."""

    @property
    def busiest(self) -> tuple[int, int]:
        """The busiest minute of the whole, and how many begin in it."""
        both = [a + b for a, b in zip(self.others.starts, self.found.load.starts, strict=True)]
        most = max(both)
        return both.index(most), most

    @property
    def overlap(self) -> str:
        """What becomes of due times that come while a run goes on."""
        most = self.rules.max_running
        if most is None:
            return OVERLAP["allow"]
        runs = "a run goes on" if most == 1 else f"{most} runs go on"
        return OVERLAP.get(self.rules.overlap, "").format(runs=runs)


@dataclass(frozen=True, slots=True)
class AskedOutage:
    """An outage, as it is asked about."""

    since: str
    until: str
    jobs: str
    """Jobs whose names contain this; '' for all. Not a pattern: some patterns take for ever on some names."""

    @classmethod
    def of(cls, given: Mapping[str, str]) -> AskedOutage | None:
        """What a request asks; None if it asks for no outage."""
        words = {word: given.get(word, "").strip() for word in ("from", "to", "jobs")}
        _check(words)
        if not words["from"] and not words["to"]:
            return None
        return cls(words["from"], words["to"], words["jobs"])


@dataclass(frozen=True, slots=True)
class OutageAnswer:
    """What becomes of the due times of all jobs that fall into an outage."""

    since: datetime
    until: datetime
    rows: tuple[OutageOfJob, ...]
    """The first of them, those that lose the most first."""
    concerned: int
    """How many jobs have due times in it."""
    looked_at: int
    jobs: int
    """How many there are to look at."""
    unknown: tuple[str, ...]
    due: int
    late: int
    made_up: int
    skipped: int
    unharmed: int
    at_once: int
    """How many runs are ready when the nodes are back."""
    work: float
    """Seconds that these take, one after the other."""
    unmeasured: int
    """Jobs of them of which no run was measured."""

    @property
    def cut(self) -> bool:
        """Not all jobs were looked at, or not all due times of one."""
        return self.looked_at < self.jobs or any(one.cut for one in self.rows)


def answer_schedule(asked: AskedSchedule, counted: CountedLoad, application: str, zone: tzinfo) -> ScheduleAnswer:
    """The answer about a schedule."""
    known = None
    if asked.job and (known := counted.jobs.get(asked.job)) is None:
        raise ConfigurationError(
            f"job: {asked.job!r:.80} is not among the jobs that were counted. Leave it empty for a new job."
        )
    policy = dict(asked.options)
    given = rules(policy, where="what-if") if known is None else amended(known.rules, policy, where="what-if")
    trigger = trigger_from(asked.expr, asked.tz or None).in_zone(str(zone))
    job = LoadJob(NEW if known is None else known.name, trigger, given, None if known is None else known.took)
    now = counted.at
    rest = Pacer(PATIENCE).rest
    found = schedule(job, application, now, STEPS, rest)
    before = None
    if known is not None and known.trigger is not None:
        whole = schedule(known, application, now, STEPS, rest)
        before, found = whole.load, replace(found, cut=found.cut or whole.cut)
    others = _without(counted.load.whole, before)
    first = found.times[0].timestamp() if found.times else None
    return ScheduleAnswer(
        job="" if known is None else known.name,
        rules=given,
        found=found,
        before=before,
        others=others,
        start=counted.load.start,
        examples=() if first is None else tuple(_examples(job, application, first, rest)),
        quiet=_quiet(found.load, others, moment(counted.load.start, zone).minute),
    )


def _without(whole: QueueLoad, part: QueueLoad | None) -> QueueLoad:
    if part is None:
        return whole
    return replace(whole, starts=tuple(max(a - b, 0) for a, b in zip(whole.starts, part.starts, strict=True)))


def _examples(job: LoadJob, application: str, first: Instant, rest: Rest) -> Iterator[tuple[float, OutageOfJob | None]]:
    for length in EXAMPLES:
        yield length, outage(job, application, first - 1, first - 1 + length, STEPS // 10, rest=rest)


def _quiet(mine: QueueLoad, others: QueueLoad, offset: int) -> tuple[int, int, int] | None:
    """The quietest minute of the hours in which something is due. `offset`: which minute of the hour is the first."""
    due = [minute for minute, starts in enumerate(mine.starts) if starts]
    if not due:
        return None
    hours = {(offset + minute) // _HOUR for minute in due}
    most = [0] * _HOUR
    for minute, starts in enumerate(others.starts):
        hour, of_hour = divmod(offset + minute, _HOUR)
        if hour in hours:
            most[of_hour] = max(most[of_hour], starts)
    quietest = min(range(_HOUR), key=lambda minute: (most[minute], minute))
    return quietest, most[quietest], max(others.starts[minute] for minute in due)


def answer_outage(
    asked: AskedOutage, counted: CountedLoad, application: str, now: Instant, zone: tzinfo
) -> OutageAnswer:
    """The answer about an outage."""
    since, until = _span(asked, now, zone)
    chosen = [job for name, job in counted.jobs.items() if asked.jobs.lower() in name.lower()]
    if asked.jobs and not chosen:
        raise ConfigurationError(f"jobs: the name of no job that was counted contains {asked.jobs!r:.80}.")
    forecast = OutageForecast(application, since, until, STEPS, Pacer(PATIENCE).rest)
    for job in chosen:
        if forecast.spent:
            break
        forecast.add(job)
    found = sorted(forecast.jobs, key=lambda one: (not one.cut, not one.lost, -one.skipped, -one.due, one.job))
    ready = [one for one in found if one.at_once]
    return OutageAnswer(
        since=moment(since, zone),
        until=moment(until, zone),
        rows=tuple(found[:ROWS]),
        concerned=len(found),
        looked_at=forecast.looked_at,
        jobs=len(chosen),
        unknown=tuple(forecast.unknown),
        due=sum(one.due for one in found),
        late=sum(one.late for one in found),
        made_up=sum(len(one.made_up) for one in found),
        skipped=sum(one.skipped for one in found),
        unharmed=sum(one.unharmed for one in found),
        at_once=sum(one.at_once for one in ready),
        work=sum((one.took or 0.0) * one.at_once for one in ready),
        unmeasured=sum(one.took is None for one in ready),
    )


def _span(asked: AskedOutage, now: Instant, zone: tzinfo) -> tuple[Instant, Instant]:
    since = now if not asked.since else _instant(asked.since, "from", now, zone)
    if not asked.until:
        raise ConfigurationError("to: it is missing. Write how long the outage lasts, such as 4h, or when it ends.")
    if asked.until[:1].isdigit() and not asked.until[:5].endswith("-"):
        until = since + seconds(asked.until, "to")
    else:
        until = _instant(asked.until, "to", now, zone)
    if not since < until:
        raise ConfigurationError(f"to: {asked.until!r:.60} is not after the beginning. Write a later time, or 4h.")
    if until - since > LONGEST_OUTAGE:
        raise ConfigurationError(f"to: an outage of {readable(until - since)} is too long. Write at most 31 days.")
    return since, until


def _instant(text: str, word: str, now: Instant, zone: tzinfo) -> Instant:
    """A time: '2026-11-14 02:00' in this zone, or with a zone, or '+2h' from now."""
    if text[0] in "+-":
        length = seconds(text[1:], word)
        found = now + (length if text[0] == "+" else -length)
    else:
        try:
            when = datetime.fromisoformat(text)
            found = (when if when.tzinfo is not None else when.replace(tzinfo=zone)).timestamp()
        except (ValueError, OverflowError):
            raise ConfigurationError(
                f"{word}: {text!r:.60} is not a time. Write it as 2026-11-14 02:00, or with a zone as "
                "2026-11-14T02:00Z, or +2h from now."
            ) from None
    if abs(found - now) > FARTHEST:
        raise ConfigurationError(f"{word}: {text!r:.60} is further than ten years away.")
    return found


def _check(words: Mapping[str, str]) -> None:
    for word, text in words.items():
        if len(text) > TEXT:
            raise ConfigurationError(f"{word}: it has more than {TEXT} characters.")
        if "\0" in text:
            raise ConfigurationError(f"{word}: it contains the character NUL.")
