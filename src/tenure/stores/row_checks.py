"""Rows that nobody should have written. One that cannot be read must not stop the others: it is left out, or ended, and named in the log once.

A row is data and nothing more. What it says is checked here before it is used: rules and triggers are JSON of a known shape, instants lie
within the calendar, figures within what can be counted on, and the evidence of a node is made of plain numbers and words.
"""

from __future__ import annotations

import json
import logging
from dataclasses import asdict, dataclass, fields
from functools import lru_cache
from typing import Any, cast, get_args

from tenure.core.cluster import HostCard
from tenure.core.records import Instant, Missed, OnLost, Overlap, Rules
from tenure.errors import TenureError
from tenure.triggers import from_json
from tenure.util.durations import LONGEST

logger = logging.getLogger("tenure")

EARLIEST, LATEST = -2_208_988_800.0, 253_370_764_800.0
"""1900 and 9999: instants that every zone can show."""
MOST = 2_147_483_647
"""What a count may be."""
HIGHEST_TERM = 2**62
"""No term is granted beyond it: there must always be a next one."""
PATIENCE = 60.0
"""The ttl of a node whose row has none that makes sense."""
REMEMBERED = 10_000

_RULES = {field.name for field in fields(Rules)}
_WORDS = {"missed": get_args(Missed), "overlap": get_args(Overlap), "on_lost": get_args(OnLost)}


@dataclass(frozen=True, slots=True)
class UnreadableRules(Rules):
    """Stand where rules cannot be read: the defaults, with the reason. Equal to no rules, so that code which defines the job writes its own."""

    why: str = ""


def rules_from(text: object) -> Rules:
    """The rules in a text. A rule that only a newer library knows is left to it. Never raises, see `UnreadableRules`."""
    try:
        written = json.loads(cast("str", text))
        known = {name: value for name, value in written.items() if name in _RULES}
        if isinstance(known.get("backoff"), list):
            known["backoff"] = tuple(known["backoff"])
        rules = Rules(**known)
        wrong = next((name for name, value in asdict(rules).items() if not _fits(name, value)), None)
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        return UnreadableRules(why=f"its rules are not the JSON of rules ({type(error).__name__})")
    return rules if wrong is None else UnreadableRules(why=f"its rules say {wrong}={known.get(wrong)!r:.60}")


def _fits(name: str, value: object) -> bool:
    match name:
        case "missed" | "overlap" | "on_lost":
            return value in _WORDS[name]
        case "queue":
            return isinstance(value, str)
        case "max_running":
            return value is None or (is_count(value) and value != 0)
        case "retries" | "max_lost":
            return is_count(value)
        case "grace" | "timeout":
            return value is None or _is_length(value)
        case "backoff":
            return isinstance(value, tuple) and len(value) == 2 and all(map(_is_length, value))  # noqa: PLR2004 - the first and the longest
        case _:
            return _is_length(value)


def _is_length(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= LONGEST


@lru_cache(maxsize=10_000)
def trigger_problem(text: str) -> str:
    """Why this is not the text of a trigger; '' if it is one."""
    try:
        from_json(text)
    except TenureError as error:
        return str(error)
    return ""


def is_count(value: object) -> bool:
    return type(value) is int and 0 <= value <= MOST


def is_instant(value: object) -> bool:
    return isinstance(value, int | float) and EARLIEST <= value <= LATEST


def clamped(value: Instant) -> Instant:
    """The nearest instant that can be shown."""
    if EARLIEST <= value <= LATEST:
        return value
    return LATEST if value > LATEST else EARLIEST


def clamped_or_none(value: Instant | None) -> Instant | None:
    return None if value is None else clamped(value)


def job_problem(rules: Rules, trigger: object) -> str:
    """Why runs of this job cannot begin; '' if they can."""
    if isinstance(rules, UnreadableRules):
        return rules.why
    if trigger is None:
        return ""
    return trigger_problem(trigger) if isinstance(trigger, str) else f"its trigger is {trigger!r:.60}"


def host_card(host: object) -> HostCard | None:
    """The evidence in a row, if it is of the right shape; a row is never trusted further than that."""
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
    """The text with what no table takes spelt out: NUL, and halves of characters. A body may say anything, and its words go with others'."""
    if text.isascii() and "\0" not in text:
        return text
    return text.encode(errors="backslashreplace").decode().replace("\0", "\\x00")


def printable(text: object) -> str:
    """The text on one line, with what would move a cursor or forge a line spelt out."""
    plain = str(text)
    if plain.isprintable():
        return plain
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in plain)


def spelt(text: object) -> str:
    """A text of several lines, with what would move a cursor spelt out; its line breaks and tabs stay."""
    return "\n".join("\t".join(map(printable, line.split("\t"))) for line in str(text).split("\n"))


class Complaints:
    """Says once of each job what is wrong with it."""

    def __init__(self) -> None:
        self._told: set[tuple[object, object]] = set()

    def tell(self, job: object, generation: object, name: object, why: str) -> None:
        """Log it, unless it is known."""
        if (job, generation) in self._told:
            return
        if len(self._told) >= REMEMBERED:
            self._told.clear()
        self._told.add((job, generation))
        logger.error("job %r cannot be read here: %s", name, why, extra={"action": "job_unreadable"})
