"""Jobs that follow other jobs, as definitions: what is refused, and how it is told (G4)."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Iterator

from tenure.core.records import JobRow, JobSpec, JobState, Rules
from tenure.errors import ConfigurationError

FARTHEST = 1000
"""How long a chain of jobs may be."""


def told(rules: Rules) -> str:
    """What a job follows, where others show their trigger: 'after load (success)'; '' if it follows none."""
    return "" if rules.after is None else f"after {rules.after} ({rules.on})"


def parent_trouble(name: str, parent: JobRow | None) -> str:
    """Why the job that another follows has no runs; '' if it may have some."""
    if parent is None:
        return f"there is no job {name!r}, so this job does not run"
    if parent.state is JobState.REMOVED:
        by = f" by {parent.removed_by}" if parent.removed_by else ""
        return f"{name!r} was removed{by}, so this job does not run until it is restored"
    if parent.state is JobState.PAUSED:
        return f"{name!r} is paused, so this job does not run until it is resumed"
    if parent.state is JobState.DONE:
        return f"{name!r} is done, so this job does not run any more"
    return ""


def refuse_to_follow(name: str, rules: Rules, *, trigger: bool) -> None:
    """Raise what is wrong with a job that follows another."""
    if rules.after is None:
        return
    if trigger:
        raise ConfigurationError(
            f"job {name!r}: after={rules.after!r} does not go with a trigger: a job that follows another is due "
            "whenever that has ended. Leave one of them out."
        )
    if rules.after == name:
        raise ConfigurationError(f"job {name!r}: after={name!r} is the job itself. Name the job that runs before it.")
    if late := [word for word in ("jitter", "spread") if getattr(rules, word)]:
        raise ConfigurationError(
            f"job {name!r}: {late[0]} shifts due times, and a job that follows another begins when that has ended. "
            f"Leave {late[0]} out, or give it to {rules.after!r}."
        )


def refuse_cycles(name: str, parent: Callable[[str], str | None]) -> None:
    """Raise if a job follows itself by way of others. `parent` says which job a job follows."""
    line = [name]
    for one in ancestors(name, parent):
        line.append(one)
        if one == name:
            told_of = ", which follows ".join(map(repr, line[1:]))
            raise ConfigurationError(
                f"job {name!r} follows {told_of}: that is a cycle, so none of them would ever run. "
                "Give one of them a trigger instead of after=."
            )


def ancestors(name: str, parent: Callable[[str], str | None]) -> Iterator[str]:
    """The job that a job follows, the one that that follows, and so on; ends where it comes round."""
    seen: set[str] = set()
    one = parent(name)
    while one is not None and one not in seen and len(seen) < FARTHEST:
        seen.add(one)
        yield one
        one = parent(one)


def first_trigger(spec: JobSpec, look: Callable[[str, str], JobSpec | None]) -> str | None:
    """The trigger of a job; of one that follows another, that of the first in the chain. `look` finds a job of an
    application."""
    one: JobSpec | None = spec
    passed: set[str] = set()
    while one is not None and one.trigger is None and (parent := one.rules.after) is not None and parent not in passed:
        passed.add(parent)
        one = look(one.application, parent)
    return None if one is None else one.trigger


def unknown_parent(name: str, parent: str, names: Iterable[str]) -> ConfigurationError:
    """The error for a job that follows a job which does not exist."""
    near = difflib.get_close_matches(parent, [one for one in names if one != name], 3)
    meant = f"Did you mean {' or '.join(map(repr, near))}?" if near else "Define or add that job first."
    return ConfigurationError(f"job {name!r}: after={parent!r}, and there is no such job. {meant}")
