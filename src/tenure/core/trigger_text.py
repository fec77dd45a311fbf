"""Reads the text of a trigger, as rows store it, once, and finds its zone; or as people type it. Every other module
reads triggers here."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import tzinfo
from functools import lru_cache

from tenure.core.records import Instant
from tenure.errors import ConfigurationError, TenureError
from tenure.triggers import Trigger, cron, every, from_json, zone
from tenure.triggers.zones import Zone


@lru_cache(maxsize=10_000)
def read_trigger(text: str | None) -> tuple[Trigger | None, str]:
    """The trigger, if the text can be read; and what is wrong with the text, else ''. Users must be able to see such a
    job to remove it."""
    try:
        return (None, "") if text is None else (from_json(text), "")
    except TenureError as error:
        return None, str(error)


def trigger_of(text: str) -> Trigger:
    """The trigger. Raises if the text cannot be read."""
    trigger, problem = read_trigger(text)
    if trigger is None:
        raise ConfigurationError(problem)
    return trigger


def first_sentence(text: str) -> str:
    """The first sentence of an explanation, without its full stop."""
    return text.partition(". ")[0].rstrip(".")


def expressions(trigger: Trigger) -> tuple[str, ...]:
    """The cron expressions in a trigger, as they were written, each once."""

    def within(part: object) -> Iterator[str]:
        match part:
            case {"trigger": "cron", "expr": str(expr)}:
                yield expr
            case dict():
                for value in part.values():
                    yield from within(value)
            case list() | tuple():
                for value in part:
                    yield from within(value)

    return tuple(dict.fromkeys(within(trigger.as_dict())))


def zone_of(trigger: Trigger | str | None, due: Instant | None = None, *, default: str = "UTC") -> tzinfo:
    """The zone of a job, in which its due times are shown: to bodies, to users and in tests. `default` is for triggers
    without one.

    If the parts of a trigger have several zones, it is that of the part that is due at this instant.
    """
    found = trigger if trigger is None or isinstance(trigger, Trigger) else read_trigger(trigger)[0]
    return zone((None if found is None else found.zone_at(due)) or default)


def common_zone(triggers: Iterable[str | None]) -> str | None:
    """The key of the one zone that these triggers have; None if they have several, or none."""
    zones = {trigger.zone_at() for trigger, _ in map(read_trigger, {*triggers}) if trigger is not None} - {None}
    return zones.pop() if len(zones) == 1 else None


def trigger_from(expr: str, tz: Zone | None) -> Trigger:
    """The trigger that people mean: `0 3 * * *` and `@daily` are cron, `30s` and `every 30s` are elapsed time."""
    text = expr.strip()
    period = text.removeprefix("every ").strip()
    if period != text or not (" " in text or text.startswith("@")):
        return every(period, tz=tz)
    return cron(text, tz)
