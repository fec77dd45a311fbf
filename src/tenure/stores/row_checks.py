"""Checks rows before they are used (G4): a row that cannot be read must not stop the others.

Such a row is left out, or its run is ended, and the log names it once. A row is data and nothing more: rules and
triggers must be JSON of a known shape, instants must lie within the calendar, counts within 32 bits, and the evidence
of a node must be plain numbers and text.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable
from typing import Any, cast

from tenure.core.cluster import HostCard
from tenure.core.figures import COUNTS, Figures, FiguresRow, Measure, read_buckets
from tenure.core.job_options import UnreadableRules
from tenure.core.records import AttemptOutcome, Instant, JobId, Rules
from tenure.core.trigger_text import read_trigger
from tenure.util.durations import LONGEST

logger = logging.getLogger("tenure")

EARLIEST, LATEST = -2_208_988_800.0, 253_370_764_800.0
"""1900 and 9999: instants that every zone can show."""
MOST = 2_147_483_647
"""The highest count."""
HIGHEST_TERM = 2**62
"""The highest term that is granted: there must always be a next one."""
PATIENCE = 60.0
"""The ttl of a node whose row has no valid one."""
REMEMBERED = 10_000

_OUTCOMES = frozenset(AttemptOutcome)


def is_count(value: object) -> bool:
    return type(value) is int and 0 <= value <= MOST


def is_instant(value: object) -> bool:
    return isinstance(value, int | float) and EARLIEST <= value <= LATEST


def clamped(value: Instant) -> Instant:
    """The nearest instant that every zone can show."""
    if EARLIEST <= value <= LATEST:
        return value
    return LATEST if value > LATEST else EARLIEST


def clamped_or_none(value: Instant | None) -> Instant | None:
    return None if value is None else clamped(value)


def attempt_outcome(word: object) -> AttemptOutcome:
    """How an attempt ended. An unknown word counts as failed."""
    return AttemptOutcome(word) if isinstance(word, str) and word in _OUTCOMES else AttemptOutcome.FAILED


def figures_of(*columns: Any) -> Figures:
    """Figures from the columns of a row. What is not a number counts as 0."""
    late, took = columns[len(COUNTS) : len(COUNTS) + 3], columns[len(COUNTS) + 3 :]
    return Figures(**_counts(columns), late=_measure(*late), took=_measure(*took))


def counts_of(*columns: Any) -> Figures:
    """Figures from the counts of a row, which come first. What is not a number counts as 0."""
    return Figures(**_counts(columns), late=Measure(), took=Measure())


def _counts(columns: Iterable[object]) -> dict[str, int]:
    return dict(zip(COUNTS, map(_number, columns), strict=False))


def _measure(total: object, most: object, text: object) -> Measure:
    return Measure(_number(total), _number(most), read_buckets(text))


def _number(value: object) -> int:
    return value if isinstance(value, int) and value >= 0 else 0


def figures_row(row: tuple[Any, ...]) -> FiguresRow:
    """Figures with their job and the beginning of their hour or day, in seconds."""
    job, start, *columns = row
    return FiguresRow(JobId(job), clamped(start), figures_of(*columns))


def job_problem(rules: Rules, trigger: object) -> str:
    """Why runs of this job cannot begin; '' if they can."""
    if isinstance(rules, UnreadableRules):
        return rules.why
    if trigger is None:
        return ""
    return read_trigger(trigger)[1] if isinstance(trigger, str) else f"its trigger is {trigger!r:.60}"


def host_card(host: object) -> HostCard | None:
    """The evidence in a row, if it has the right shape. A row is never trusted further than that."""
    try:
        written = json.loads(host) if isinstance(host, str | bytes) else host
        card = HostCard(**cast("dict[str, Any]", written)) if isinstance(written, dict) else None
    except (TypeError, ValueError, RecursionError):
        return None
    if card is None:
        return None
    words: tuple[object, ...] = (card.boot_id, card.nonce)
    numbers: tuple[object, ...] = (card.pid_namespace, card.started, card.device, card.inode)
    plain = all(isinstance(word, str) for word in words) and all(
        type(number) is int and 0 <= number < 2**64 for number in numbers
    )
    return card if plain and is_count(card.pid) and card.pid > 0 else None


def ttl_of(value: object) -> float:
    """The ttl of a node, in seconds."""
    if isinstance(value, int | float) and 0 < value <= LONGEST:
        return float(value)
    return PATIENCE


def storable(text: str) -> str:
    """The text with NUL and lone surrogates escaped: no table stores them, and a body may log anything."""
    if text.isascii() and "\0" not in text:
        return text
    return text.encode(errors="backslashreplace").decode().replace("\0", "\\x00")


class Complaints:
    """Logs the problem of each job once."""

    def __init__(self) -> None:
        self._told: set[tuple[object, object]] = set()

    def tell(self, job: object, generation: object, name: object, why: str) -> None:
        """Log a problem, unless it was logged before."""
        if (job, generation) in self._told:
            return
        if len(self._told) >= REMEMBERED:
            self._told.clear()
        self._told.add((job, generation))
        logger.error("job %r cannot be read here: %s", name, why, extra={"action": "job_unreadable"})
