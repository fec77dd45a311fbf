"""`tenure check` and `tenure diff`: what is wrong with an application's definitions, and what a deploy would change."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from contextlib import closing

from tenure.async_scheduler import threaded_of
from tenure.cli.elections import STATEMENT_TIMEOUT
from tenure.cli.jobs import datetime_of
from tenure.cli.output import BOLD, GREEN, RED, YELLOW, as_json, paint, show, wrapped
from tenure.cli.run import find
from tenure.errors import ConfigurationError
from tenure.jobs.definition_check import Problem, problems
from tenure.jobs.definition_news import News, NewsKind
from tenure.jobs.importing import only_looking
from tenure.jobs.start_preview import preview, unfit
from tenure.scheduler import service_of
from tenure.scheduling.service import SchedulerService
from tenure.util.clock import walltime
from tenure.util.plurals import counted

Command = Callable[..., argparse.ArgumentParser]

_WORDS = {
    NewsKind.NEW: ("new", GREEN),
    NewsKind.CHANGED: ("changed", YELLOW),
    NewsKind.PUT_BACK: ("changed", YELLOW),
    NewsKind.OVERRIDE_ENDED: ("overwritten", RED),
    NewsKind.BACK: ("back", RED),
    NewsKind.REMOVED: ("stays removed", ""),
    NewsKind.OVERRIDDEN: ("stays changed by hand", ""),
    NewsKind.NEWER_RELEASE: ("ignored", ""),
    NewsKind.GONE: ("gone", RED),
    NewsKind.DONE: ("never due", RED),
    NewsKind.POOL: ("pool", YELLOW),
}


def add(command: Command) -> None:
    """Add both commands to the parser."""
    checked = command(
        "check",
        check,
        "check an application's definitions, for CI",
        "Import an application, without its database, and check its jobs: definitions, arguments against the "
        "signatures of their functions, due times that never come, what the next clock changes do, and many jobs in "
        "the same minute. Exit code 1 if something is wrong; with --strict also for warnings. Nothing is started.",
        "tenure check app.jobs:scheduler",
        "tenure check app.jobs --strict --json",
        store=False,
        json=True,
    )
    _place(checked)
    checked.add_argument("--strict", action="store_true", help="exit code 1 for warnings, too")
    checked.add_argument("--after", metavar="TIME", help="check as of this time (default: now)")
    compared = command(
        "diff",
        diff,
        "show what a deploy would change in a database",
        "Import an application and compare its jobs with those in a database, as its next start will: what is new, "
        "changed or gone, which changes by hand are overwritten, and what stays as it is although the code says "
        "otherwise; and which stored arguments no longer fit. Nothing is written or started. Exit code 1 "
        "if something would change, or if arguments do not fit.",
        "tenure diff app.jobs:scheduler",
        "tenure diff app.jobs:scheduler --url postgresql://app@db/shop --json",
        store=False,
        json=True,
    )
    _place(compared)
    compared.add_argument("--url", metavar="URL", help="another database than the scheduler's own (or TENURE_URL)")


def _place(added: argparse.ArgumentParser) -> None:
    added.add_argument(
        "place", metavar="MODULE:SCHEDULER", help="where the scheduler is; MODULE is enough if it has only one"
    )


def check(arguments: argparse.Namespace) -> int:
    """Check the definitions. 1 if something is wrong, or with --strict if something is worth a warning."""
    now = walltime() if arguments.after is None else datetime_of(arguments.after, "after")
    jobs, found = 0, list[Problem]()
    try:
        service = _looked_at(arguments.place)
    except ConfigurationError as error:
        if error.__cause__ is None:  # there is no such module or scheduler
            raise
        found.append(Problem("definition", wrong=True, jobs=(), text=str(error)))
    else:
        jobs = len(service.definitions.jobs)
        found += [_runs_at_import(arguments.place)] if service.ran else []
        found += problems(service.definitions, service.options.queues, now)
    wrong = sum(problem.wrong for problem in found)
    code = 1 if wrong or (found and arguments.strict) else 0
    if arguments.json:
        clean, listed = code == 0, [problem.as_dict() for problem in found]
        as_json({"place": arguments.place, "clean": clean, "jobs": jobs, "problems": listed})
        return code
    for problem in found:
        _told("wrong" if problem.wrong else "warning", RED if problem.wrong else YELLOW, "", [problem.text])
    warnings = len(found) - wrong
    show(f"{arguments.place}: {counted(jobs, 'job')}, {wrong} wrong, {counted(warnings, 'warning')}")
    return code


def diff(arguments: argparse.Namespace) -> int:
    """Compare the definitions with a database. 1 if a start would change something, or runs would fail."""
    service = _looked_at(arguments.place)
    definitions = service.definitions
    store = service.store_as_it_is(arguments.url)
    store.prepare()
    with closing(store.session("diff", STATEMENT_TIMEOUT)) as session:
        news = preview(session.ledger, definitions, definitions.registry.names)
        misfits = unfit(session.ledger, definitions)
    changes = [one for one in news if one.changes]
    if arguments.json:
        as_json(
            {
                "application": definitions.application,
                "store": store.shown,
                "changes": bool(changes),
                "news": [_as_dict(one) for one in news],
                "unfit": [one.as_dict() for one in misfits],
            }
        )
    else:
        for one in news:
            word, colour = _WORDS[one.kind]
            remarks = [one.remark] if one.remark else []
            _told(word, colour, one.name, [*(d.change for d in one.differences), *remarks])
        for misfit in misfits:
            _told("unfit", RED, misfit.function, [misfit.text])
        what = "nothing would change" if not changes else f"a start would change {counted(len(changes), 'job')}"
        show(f"{counted(len(definitions.jobs), 'job')} of {definitions.application!r} in the code; {what}")
    return 1 if changes or misfits else 0


def _looked_at(place: str) -> SchedulerService:
    """The service of the scheduler, imported without starting anything."""
    with only_looking():
        found = find(place)
    return service_of(threaded_of(found))


def _runs_at_import(place: str) -> Problem:
    text = f"{place} runs while its module is imported. Put scheduler.run() below if __name__ == '__main__'."
    return Problem("definition", wrong=True, jobs=(), text=text)


def _told(word: str, colour: str, name: str, lines: Sequence[str]) -> None:
    """A coloured word, a name, and the rest: on a terminal in lines that fit it."""
    head = [paint(word, colour), "  " if name else "", paint(name, BOLD)]
    if name:
        show(*head)
    for line in lines:
        for number, one in enumerate(wrapped(line, first="    " if name else f"{word}  ", hang=4)):
            if number == 0 and not name:
                show(paint(word, colour), one.removeprefix(word))
            else:
                show(one)


def _as_dict(news: News) -> dict[str, object]:
    return {
        "kind": news.kind.value,
        "pool" if news.kind is NewsKind.POOL else "job": news.name,
        "changes": news.changes,
        "differences": [{"what": one.word, "old": one.one, "new": one.other} for one in news.differences],
        "text": news.text,
    }
