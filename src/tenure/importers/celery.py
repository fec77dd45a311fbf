"""Imports the `beat_schedule` of a Celery app as jobs that call its tasks in the node itself."""

from __future__ import annotations

from typing import Any

from celery.beat import ScheduleEntry

from tenure.errors import ConfigurationError
from tenure.ext.celery.schedules import trigger_of
from tenure.importers.found import Found, Imported, Left, Names, plain

DIFFERENCES = (
    (
        "these jobs call the tasks in tenure's nodes, without a broker and without Celery's workers. To keep your "
        "workers, import nothing: run `celery beat -S tenure.ext.celery:Scheduler`."
    ),
    (
        "Celery counts intervals from the start of beat or from the last run; here they count from a fixed time that "
        "all nodes share."
    ),
    (
        "Celery starts a task even if the last one is still running. Here the new run is skipped and recorded as "
        "skipped; overlap='allow' is Celery's way."
    ),
    (
        "retries, time limits and acks_late of a task belong to Celery: write retries=, timeout= and on_lost= beside "
        "the trigger."
    ),
)


def read(app: Any, origin: str) -> Imported:
    """All entries, including those of `add_periodic_task`."""
    app.finalize()
    app.loader.import_default_modules()
    names, found, left = Names(), list[Found](), list[Left]()
    for name, entry in app.conf.beat_schedule.items():
        try:
            found.append(_job(names, app, ScheduleEntry(**{**entry, "name": name, "app": app})))
        except ConfigurationError as error:
            left.append(Left(name, str(error)))
    return Imported(origin, tuple(found), tuple(left), DIFFERENCES)


def _job(names: Names, app: Any, entry: Any) -> Found:
    if not plain(list(entry.args or ())) or not plain(entry.kwargs):
        raise ConfigurationError(
            "some of its arguments are objects, or computed when it is sent. Write a job with them in its body."
        )
    task = app.tasks.get(entry.task)
    policy, notes = dict[str, object](), list[str]()
    for option, value in entry.options.items():
        if option == "queue" and isinstance(value, str):
            policy["queue"] = value
            notes.append(f"only nodes that serve its queue run it: Scheduler(queues=['default', {value!r}]).")
        elif option == "expires" and isinstance(value, int | float):
            policy["grace"] = float(value)
            policy["missed"] = "skip"
        else:
            notes.append(f"the option {option}={value!r} is left out.")
    arguments = ", ".join(
        [*(repr(value) for value in entry.args or ()), *(f"{key}={value!r}" for key, value in entry.kwargs.items())]
    )
    called = getattr(task, "run", None)
    module, function = getattr(called, "__module__", ""), getattr(called, "__name__", "")
    if module and function:
        lines: tuple[str, ...] = (f"from {module} import {function}", "", f"{function}({arguments})")
    else:
        lines = (f"raise NotImplementedError({entry.task!r})",)
        notes.append(f"the task {entry.task!r} is not registered here: import its module, or write its call.")
    return Found(
        name=names.of(entry.name),
        trigger=trigger_of(entry.name, entry.schedule),
        body=lines,
        source=f"{entry.name}: {entry.task}, {entry.schedule!r}",
        policy=tuple(policy.items()),
        notes=tuple(notes),
    )
