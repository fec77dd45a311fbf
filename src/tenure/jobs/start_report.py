"""Logs what becomes of the definitions that a process writes to the ledger at its start.

No job that the code defines changes or stays different without a line in the log.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping

from tenure.core.differences import before_and_after, in_force
from tenure.core.messages import Synced
from tenure.core.records import JobRow, JobSpec, JobState
from tenure.core.trigger_text import zone_of
from tenure.jobs.operations import Looks, warn_of_done
from tenure.util.instants import shown

logger = logging.getLogger("tenure")


def tell(ledger: Looks, synced: Iterable[Synced], brought: Mapping[str, JobSpec], tz: str) -> None:
    """Log each job whose definition has changed, or that runs differently from its definition here."""
    for one in synced:
        job, was = one.row, one.was
        if was is None or was.generation != job.generation:
            if was is not None:
                _tell_of_change(was, job)
            if job.state is JobState.DONE:
                warn_of_done(ledger, job, zone_of(job.spec.trigger, default=tz))
        elif job.state is JobState.REMOVED:
            _warn_of_removed(job)
        elif not brought[job.spec.name].same_as(job.spec):
            _tell_of_difference(job, brought[job.spec.name])


def _tell_of_change(was: JobRow, job: JobRow) -> None:
    """The definition in the code has changed."""
    name, change = job.spec.name, before_and_after(was.code, job.spec)
    if was.state is JobState.REMOVED:
        logger.warning(
            "job %r was removed%s and is back: its definition in the code has changed (%s)",
            name,
            _by_and_at(was.removed_by, was.removed_at),
            change,
            extra={"action": "removed_and_back"},
        )
    elif was.override is not None:
        logger.warning(
            "job %r runs as defined here again, because its definition has changed (%s). Until now it ran as "
            "changed%s: %s",
            name,
            change,
            _by_and_at(was.override.by, was.override.at),
            in_force(was.spec, was.code),
            extra={"action": "override_ended"},
        )
    else:
        logger.info(
            "job %r: its definition in the code has changed (%s)", name, change, extra={"action": "definition_changed"}
        )


def _warn_of_removed(job: JobRow) -> None:
    name = job.spec.name
    logger.warning(
        "job %r is defined here, but was removed%s: it does not run. `tenure restore %s`, or a change of its "
        "definition, brings it back",
        name,
        _by_and_at(job.removed_by, job.removed_at),
        name,
        extra={"action": "removed_but_defined"},
    )


def _tell_of_difference(job: JobRow, brought: JobSpec) -> None:
    """The ledger has another definition in force than this process has."""
    name = job.spec.name
    if job.override is not None and brought.same_as(job.code):
        logger.info(
            "job %r runs as changed%s, not as defined here: %s. `tenure reset %s`, or a change of its definition, ends "
            "that",
            name,
            _by_and_at(job.override.by, job.override.at),
            in_force(job.spec, job.code),
            name,
            extra={"action": "overridden"},
        )
    else:
        logger.info(
            "job %r runs as release %d defines it, which is newer than %d here: %s",
            name,
            job.spec.release,
            brought.release,
            in_force(job.spec, brought),
            extra={"action": "newer_release"},
        )


def _by_and_at(by: str, at: float | None) -> str:
    return (f" by {by}" if by else "") + ("" if at is None else f" at {shown(at)}")
