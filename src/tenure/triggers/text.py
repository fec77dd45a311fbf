"""Triggers as text, for a row of a table: JSON with a version. Nothing is ever imported or opened because of a text."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, TypeVar

from tenure.errors import ConfigurationError
from tenure.triggers.base import MAX_BYTES, MAX_DEPTH, MAX_PARTS, VERSION, Trigger, size_of

T = TypeVar("T", bound=Trigger)


def from_json(text: str) -> Trigger:
    """The trigger that `to_json` wrote."""
    given: object = text
    if isinstance(given, str) and (size := size_of(given)) > MAX_BYTES:
        raise ConfigurationError(f"from_json: {_short(given[:200])} has {size:,} bytes; {MAX_BYTES:,} are the most.")
    try:
        fields = json.loads(text)
    except (ValueError, TypeError, RecursionError) as error:
        raise ConfigurationError(
            f"from_json: {_short(text)} is not the text of a trigger ({_reason(error)})."
        ) from None
    if not isinstance(fields, dict) or type(fields.get("v")) is not int:
        raise ConfigurationError(f"from_json: {_short(text)} is not the text of a trigger (no version).")
    if fields["v"] != VERSION:
        raise ConfigurationError(
            f"from_json: {_short(text)} has version {fields['v']}; this tenure reads version {VERSION}. "
            "Upgrade tenure here."
        )
    _limit(fields)
    return from_dict({key: value for key, value in fields.items() if key != "v"})


def checked(trigger: T) -> T:
    """The trigger itself. Raises if it has too many parts to be stored and evaluated."""
    _limit(trigger.as_dict())
    return trigger


def _limit(fields: object) -> None:
    """Refuse what is nested too deep or has too many parts, before anything is made from it."""
    parts, pending = 0, [(fields, 0)]
    while pending:
        part, depth = pending.pop()
        parts += 1
        inner = _parts_of(part)
        if inner and depth == MAX_DEPTH:
            raise ConfigurationError(
                f"trigger: {_short(fields)} is nested too deep: {MAX_DEPTH} unions and exclusions in each other are "
                f"the most. Exclude once, from the whole: (a | b) - closed(…) - closed(…)."
            )
        if parts + len(pending) + len(inner) > MAX_PARTS:
            raise ConfigurationError(
                f"trigger: {_short(fields)} is made of more than {MAX_PARTS:,} triggers and calendars. "
                "Make it several jobs."
            )
        pending += [(one, depth + 1) for one in inner]


def _parts_of(fields: object) -> list[object]:
    """The triggers and calendars that a trigger is made of."""
    if not isinstance(fields, dict):
        return []
    lists = [value for key in ("parts", "closed") if isinstance(value := fields.get(key), list)]
    return [*(one for value in lists for one in value), *([fields["of"]] if "of" in fields else [])]


def from_dict(fields: Mapping[str, Any]) -> Trigger:
    """Read one level of the text form, without the version."""
    if not isinstance(fields, dict):
        raise ConfigurationError(f"from_json: {_short(fields)} is not a trigger.")
    kinds = _kinds()
    kind = fields.get("trigger")
    if not isinstance(kind, str) or kind not in kinds:
        raise ConfigurationError(f"from_json: {_short(fields)}: the trigger is not one of {', '.join(kinds)}.")
    try:
        trigger = kinds[kind].from_dict({key: value for key, value in fields.items() if key != "trigger"})
    except ConfigurationError:
        raise
    except (KeyError, ValueError, TypeError, AttributeError, OverflowError) as error:
        raise ConfigurationError(
            f"from_json: {_short(fields)} is not the text of a trigger ({_reason(error)})."
        ) from None
    if unknown := fields.keys() - trigger.as_dict().keys():
        raise ConfigurationError(
            f"from_json: {_short(fields)} has fields that a {kind} trigger does not: {', '.join(sorted(unknown))}."
        )
    return trigger


def _kinds() -> dict[str, type[Trigger]]:
    from tenure.triggers.calendar import Calendar
    from tenure.triggers.combined import Excluding, Union
    from tenure.triggers.cron import Cron
    from tenure.triggers.elapsed import At, Every

    return {kind.kind: kind for kind in (Cron, Every, At, Calendar, Union, Excluding)}


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 200 else f"{text[:200]}…"  # noqa: PLR2004 - for a log line


def _reason(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"
