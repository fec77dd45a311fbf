"""Checks names: of jobs, queues, labels, applications and elections."""

from __future__ import annotations

import unicodedata

from tenure.errors import ConfigurationError
from tenure.util.plurals import a_type

MAX_NAME = 200
MAX_APPLICATION = 150
MARKS = ("?", "!")
"""Notices between nodes begin with these, so no election's name may."""


def named(name: object, what: str) -> str:
    """A name of a job, queue or label: text of 1 to 200 characters, none of them a control character."""
    if not isinstance(name, str):
        raise ConfigurationError(f"{what}: {name!r} is {a_type(name)}. Write a text.")
    if not name.strip():
        raise ConfigurationError(f"{what}: {name!r} is empty. Write at least one character.")
    if len(name) > MAX_NAME:
        raise ConfigurationError(f"{what}: {name[:30]!r}… has {len(name)} characters, at most {MAX_NAME} are allowed.")
    if wrong := next((c for c in name if unicodedata.category(c) in {"Cc", "Cs"}), None):
        raise ConfigurationError(f"{what}: {name!r} contains {wrong!r}, which cannot be shown. Leave it out.")
    return name


def application_name(name: object) -> str:
    """The name of an application. It is part of the name of its planner's election, and of notices between nodes."""
    application = named(name, "application")
    if len(application) > MAX_APPLICATION or not application.isprintable() or application != application.strip():
        raise ConfigurationError(
            f"application: {application!r} must be at most {MAX_APPLICATION} printable characters, "
            "without spaces at its ends."
        )
    return application


def election_name(name: object) -> str:
    """A name that every store, log and environment variable can carry."""
    if not isinstance(name, str) or not name:
        raise ConfigurationError(f"election name: {name!r} must be text, such as 'exporter'.")
    if len(name) > MAX_NAME:
        raise ConfigurationError(
            f"election name: {name[:30]!r}… has {len(name)} characters, at most {MAX_NAME} are allowed."
        )
    if not name.isprintable() or name != name.strip() or name.startswith(MARKS):
        raise ConfigurationError(
            f"election name: {name!r} must be printable, without spaces at its ends, and not begin with '?' or '!'."
        )
    return name
