"""Times as people write them in addresses and forms."""

from __future__ import annotations

from datetime import datetime, tzinfo

from tenure.errors import ConfigurationError
from tenure.util.durations import seconds
from tenure.web.page_request import Refused


def in_zone(text: str, zone: tzinfo, what: str) -> datetime:
    """A time of a job; without a zone, in that of the job."""
    try:
        when = datetime.fromisoformat(text)
    except ValueError:
        raise ConfigurationError(
            f"{what}: {text!r:.60} is not a time. Write it as 2026-11-14 12:00 (in the job's zone), or with a zone: "
            "2026-11-14T12:00Z, or -90m for an hour and a half ago."
        ) from None
    return when if when.tzinfo is not None else when.replace(tzinfo=zone)


def instant_of(text: str) -> datetime | None:
    """The time of a link that the page has made; None for ''."""
    if not text:
        return None
    try:
        at = datetime.fromisoformat(text)
        at.timestamp()
    except (ValueError, OverflowError):
        raise Refused(400, "No such time", f"before: {text[:40]!r} is not a time.") from None
    if at.tzinfo is None:
        raise Refused(400, "No zone", f"before: {text[:40]!r} has no zone.")
    return at


def until_of(text: str) -> str | datetime | None:
    """Accepts '2h', or a time in ISO 8601 with a zone."""
    if not text:
        return None
    try:
        seconds(text, "until")
    except ConfigurationError:
        try:
            when = datetime.fromisoformat(text)
        except ValueError:
            when = None
        if when is None or when.tzinfo is None:
            raise ConfigurationError(
                f"until: {text!r:.60} is neither a duration nor a time with a zone. Write 2h, or 2026-11-14T12:00Z."
            ) from None
        return when
    return text
