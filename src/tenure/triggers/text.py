"""Triggers as text, for a row of a table. JSON with a version; nothing is ever imported or opened because a text says so."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from tenure.errors import ConfigurationError
from tenure.triggers.base import VERSION, Trigger


def from_json(text: str) -> Trigger:
    """The trigger that `to_json` wrote."""
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
            f"from_json: {_short(text)} has version {fields['v']}; this tenure reads version {VERSION}. Upgrade tenure here."
        )
    try:
        return from_dict({key: value for key, value in fields.items() if key != "v"})
    except RecursionError:
        raise ConfigurationError(f"from_json: {_short(text)} is nested too deep for a trigger.") from None


def from_dict(fields: Mapping[str, Any]) -> Trigger:
    """One level of the text form, the version taken off."""
    if not isinstance(fields, dict):
        raise ConfigurationError(f"from_json: {_short(fields)} is no trigger.")
    kinds = _kinds()
    kind = fields.get("trigger")
    if not isinstance(kind, str) or kind not in kinds:
        raise ConfigurationError(f"from_json: {_short(fields)}: the trigger is none of {', '.join(kinds)}.")
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
