"""What is shown of one run, by its number or its key: its story (`show`) and its log (`log`, `log -f`)."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable

from tenure.cli.jobs import application, named_run, sentence, shown_time
from tenure.cli.output import BOLD, GREEN, RED, YELLOW, as_json, paint, say, show, show_raw
from tenure.core.arguments import plain
from tenure.core.records import RunId, RunState
from tenure.errors import UnknownJob
from tenure.jobs.run_log import with_gaps
from tenure.scheduler import Scheduler, service_of
from tenure.util.clock import sleep
from tenure.util.durations import readable
from tenure.util.plurals import counted
from tenure.views import AttemptView, LogLineView, RunView

TAIL = 10
"""Lines of the log that `show` prints."""
FOLLOWED = 0.5
"""Seconds between two looks of `log -f`."""
GOOD, BAD = {"succeeded"}, {"failed", "lost"}
LATE = 0.001
"""Seconds by which a run begins late that is worth a word."""


def show_run(arguments: argparse.Namespace, scheduler: Scheduler, run: RunView) -> int:
    """Show the whole story of a run."""
    lines, kwargs = scheduler.log_lines(run.id), _arguments(scheduler, run)
    if arguments.json:
        as_json({**run.as_dict(), "arguments": plain(kwargs), "log": [line.as_dict() for line in lines]})
    else:
        _story(run, kwargs, lines)
    return 0


def log(arguments: argparse.Namespace) -> int:
    """Show what a run logged, and why it failed."""
    with application(arguments) as scheduler:
        run = scheduler.find_run(named_run(arguments.what, arguments.job), arguments.job)
        if arguments.follow:
            return _follow(scheduler, run)
        lines = scheduler.log_lines(run.id)
    if arguments.json:
        as_json({**run.as_dict(), "log": [line.as_dict() for line in lines]})
        return 0
    say(sentence(run))
    _print(lines)
    if run.reason:
        show_raw(run.reason)
    return 0


def _arguments(scheduler: Scheduler, run: RunView) -> dict[str, object]:
    """The arguments of a run: its own, or those of its job as it is now."""
    if run.kwargs is not None:
        return run.kwargs
    try:
        return scheduler.find_job(run.job).kwargs
    except UnknownJob:  # it was removed
        return {}


def _story(run: RunView, kwargs: dict[str, object], lines: list[LogLineView]) -> None:
    show(paint(f"run {run.id} of {run.job!r}: ", BOLD), _painted(run.state))
    _fact("key", run.key)
    _fact("due", shown_time(run.scheduled_for) + (f" ({run.count} due times)" if run.count > 1 else ""))
    if run.due_at != run.scheduled_for and len(run.attempts) <= 1:
        _fact("might begin", shown_time(run.due_at))
    _fact("waits for", run.waiting)
    _fact("not ended", run.should_have_ended)
    if run.kind != "due":
        _fact("kind", f"{run.kind}{f', requested by {run.by}' if run.by else ''}")
    if kwargs:
        _fact("arguments", _json(kwargs))
    if run.progress is not None:
        _fact("progress", f"{run.progress}, at {shown_time(run.progress.at)}")
    if run.result is not None:
        _fact("result", _json(run.result))
    if run.reason and not any(attempt.error == run.reason for attempt in run.attempts):
        _fact("reason", run.reason)
    if not run.attempts:
        show("no attempt has begun" if run.state in {"pending", "waiting"} else "no attempt began")
    for attempt in run.attempts:
        _attempt(run, attempt)
    if lines:
        more = f", the last {TAIL}; `tenure log {run.id}` shows all" if len(lines) > TAIL else ""
        show(f"log: {counted(len(lines), 'line')}{more}")
        _print(lines[-TAIL:], "  ")


def _attempt(run: RunView, attempt: AttemptView) -> None:
    took = "" if attempt.duration is None else f" after {readable(attempt.duration)}"
    if attempt.outcome == RunState.RUNNING and run.running_for is not None:
        took = f" for {readable(run.running_for)}"
    show(paint(_numbers(attempt), BOLD), f" on {attempt.node}: ", _painted(attempt.outcome), took)
    if attempt.number == run.attempt > 1:
        _fact("might begin", shown_time(run.due_at))
    _fact("claimed", shown_time(attempt.claimed_at))
    late = ""
    if attempt.started_at is not None and len(run.attempts) == 1 and run.lateness is not None and run.lateness > LATE:
        late = f" ({readable(run.lateness)} late)"
    _fact("began", shown_time(attempt.started_at) + late)
    _fact("ended", shown_time(attempt.finished_at))
    for line in attempt.error.splitlines():
        show_raw(f"  {line}")


def _numbers(attempt: AttemptView) -> str:
    if attempt.count == 1:
        return f"attempt {attempt.number}"
    return f"attempts {attempt.number - attempt.count + 1} to {attempt.number}"


def _fact(word: str, text: str) -> None:
    if text:
        show(f"  {word:<11}  {text}")


def _painted(state: str) -> paint | str:
    return paint(state, GREEN) if state in GOOD else paint(state, RED) if state in BAD else paint(state, YELLOW)


def _json(value: object) -> str:
    return json.dumps(plain(value), ensure_ascii=False)


def _print(lines: Iterable[LogLineView], indent: str = "") -> None:
    for line in lines:
        show_raw(f"{indent}{line.at:%Y-%m-%d %H:%M:%S}  #{line.attempt}  {line.text}")


def _follow(scheduler: Scheduler, run: RunView) -> int:
    """Print lines as they come, until the run has ended."""
    say(sentence(run))
    service, where, number = service_of(scheduler), run.scheduled_for.tzinfo, run.id
    seen, told, over = (0, -1), "", False
    while True:
        kept = service.look(lambda ledger: with_gaps(ledger.log(RunId(number))))
        news = [line for line in kept if (line.attempt, line.place) > seen]
        if news and where is not None:
            _print(LogLineView.of(line, where) for line in news)
            seen = news[-1].attempt, news[-1].place
        if over:
            break
        run = scheduler.find_run(number)
        if run.progress is not None and str(run.progress) != told:
            told = str(run.progress)
            say(told)
        over = RunState(run.state).final  # the last lines follow the ending: look once more
        sleep(FOLLOWED * (2 if over else 1))
    say(sentence(run))
    if run.reason:
        show_raw(run.reason)
    return 0 if run.state == "succeeded" else 1
