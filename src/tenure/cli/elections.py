"""Commands about elections and the store.

Read-only commands create nothing: only `start`, `lead`, `once`, `migrate` and `demo` may create tables.
"""

from __future__ import annotations

import argparse
import difflib
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict

from tenure.cli.output import BOLD, GREEN, RED, YELLOW, as_json, colourful, local, paint, say, show, show_raw, table
from tenure.cli.person import action
from tenure.core.cluster import Epoch, Leader, TermRecord
from tenure.core.keys import planner_of
from tenure.errors import ConfigurationError, StoreUnavailable
from tenure.stores import Session, Store, store_for
from tenure.util.clock import boottime, sleep, walltime
from tenure.util.durations import positive, readable
from tenure.util.names import election_name
from tenure.util.plurals import several

STATEMENT_TIMEOUT = 5.0

POLL = 0.1


def lead(arguments: argparse.Namespace) -> int:
    """Run a command while leading."""
    from tenure.cli import lead as leading

    timing = leading.Timing.of(arguments.ttl, arguments.grace)
    wait = 0.0 if arguments.try_ else None if arguments.wait is None else positive(arguments.wait, "wait")
    again = (
        leading.Again.FOREVER
        if arguments.forever
        else leading.Again.ONCE
        if arguments.once
        else leading.Again.UNTIL_DONE
    )
    if problem := leading.find(arguments.command):
        code, why = problem
        say(why)
        return code
    check_shared(arguments)
    election = leading.election_for(
        arguments.url,
        arguments.name,
        timing=timing,
        label=arguments.label,
        schema=arguments.schema,
        migrate=not arguments.no_migrate,
    )
    tell = (lambda _: None) if arguments.quiet else say
    outcome = leading.Lead(election, arguments.command, timing=timing, again=again, say=tell).run(wait)
    if outcome.signal is not None:  # end by that signal, so that shells and supervisors see what happened
        signal.signal(outcome.signal, signal.SIG_DFL)
        os.kill(os.getpid(), outcome.signal)
    return outcome.code


def leader(arguments: argparse.Namespace) -> int:
    """Show who leads."""
    name = election_name(arguments.name)
    with read_only_session(arguments) as session:
        found = session.leader(name)
    if arguments.json:
        as_json(found)
    elif found is None:
        show(f"no node leads {name!r}")
    else:
        since = readable(max((walltime() - found.since).total_seconds(), 0.0))
        silent = "" if found.healthy else paint(", but its node is silent", YELLOW)
        show(paint(found.label, BOLD), f" has led {name!r} for {since}, in term {found.term}", silent)
    return 0 if found else 1


def terms(arguments: argparse.Namespace) -> int:
    """List past terms."""
    name = None if arguments.name is None else election_name(arguments.name)
    with read_only_session(arguments) as session:
        found = session.terms(name, arguments.limit)
    if arguments.json:
        as_json([{**asdict(record), "gap_at_most": record.gap_at_most} for record in found])
    elif not found:
        show("no terms yet" if name is None else f"no terms of {name!r} yet")
    else:
        columns = ["term", "who", "from", "until", "began by", "ended by", "gap"]
        rows = [_record(record) for record in found]
        if name is None:
            columns, rows = ["election", *columns], [[r.election, *row] for r, row in zip(found, rows, strict=True)]
        table(columns, rows)
    return 0


def resign(arguments: argparse.Namespace) -> int:
    """Ask the leader to resign; without a name, the planner of an application."""
    patience = None if arguments.wait is None else positive(arguments.wait, "wait")
    with read_only_session(arguments) as session:
        name = election_name(arguments.name or planner_of(application_of(arguments, session)))
        before = session.leader(name)
        of = application_of(arguments, session) if arguments.name is None else ""
        asked = session.ask(name, of, action(arguments, "resign"))
        if before is None or asked is None:
            return _resigned(arguments, name, None, None, f"no node leads {name!r}", code=1)
        if patience is None:
            text = f"asked {before.label} to resign term {asked} of {name!r}"
            return _resigned(arguments, name, asked, None, text, code=0)
        if not arguments.json:
            say(f"asked {before.label} to resign term {asked} of {name!r}")
        began = boottime()
        after: Leader | None = before
        while boottime() < began + patience:
            after = session.leader(name)
            if after is not None and after.term > asked:
                break
            sleep(POLL)
    took = readable(boottime() - began)
    if after is not None and after.term > asked and after.node != before.node:
        text = f"after {took}, {after.label} leads {name!r} in term {after.term}"
        return _resigned(arguments, name, asked, after, text, code=0)
    if after is None:
        text = f"term {asked} is over, but after {took} no node leads {name!r}"
    elif after.term == asked:
        text = f"after {took}, {after.label} still leads {name!r} in term {asked}: its work has not stopped yet"
    else:
        text = f"{after.label} leads {name!r} again, in term {after.term}: no other node stands for it"
    return _resigned(arguments, name, asked, after, text, code=1)


def elections(arguments: argparse.Namespace) -> int:
    """List the elections that have a leader."""
    with read_only_session(arguments) as session:
        found = session.elections()
    if arguments.json:
        as_json(found)
    elif not found:
        show("no election has a leader")
    else:
        rows = [[e.election, str(e.term), e.label, local(e.since), "healthy" if e.healthy else "silent"] for e in found]
        table(["election", "term", "who", "since", "node"], rows)
    return 0


def migrate(arguments: argparse.Namespace) -> int:
    """Create or upgrade the tables, or print the SQL for it."""
    store = store_of(arguments, migrate=True)
    if arguments.effects_only and arguments.grants is None:
        raise ConfigurationError("--effects-only is an option of --grants. Write --grants ROLE --effects-only.")
    if arguments.since is not None and not arguments.print_:
        raise ConfigurationError(f"--from is an option of --print. Write --print --from {arguments.since}.")
    if arguments.grants is not None:
        show_raw(store.grants(arguments.grants, effects_only=arguments.effects_only))
        return 0
    if arguments.print_:
        show_raw(store.migration(arguments.since or 0))
        return 0
    store.prepare()
    show(f"tenure's tables in {store.shown} are up to date")
    return 0


def epoch(arguments: argparse.Namespace) -> int:
    """Show the epoch, or raise it."""
    with read_only_session(arguments) as session:
        if arguments.action == "raise":
            return _raise_epoch(arguments, session)
        found = session.epoch()
    if arguments.json:
        as_json(_epoch(found))
    elif found.settled:
        show(f"epoch {found.number}, ", paint("settled", GREEN))
    else:
        show(
            f"epoch {found.number}, ",
            paint("not settled", RED),
            ": no new terms are granted until it is raised. A node that stands for an election raises it by itself "
            f"after {found.max_ttl:g} s; `tenure epoch raise` does the same from here.",
        )
    return 0 if found.settled else 1


def doctor(arguments: argparse.Namespace) -> int:
    """Check a store and this machine."""
    from tenure import doctor as checks

    ttl = positive(arguments.ttl, "ttl")
    return checks.run(arguments.store or arguments.url, schema=arguments.schema, ttl=ttl, as_json=arguments.json)


def demo(arguments: argparse.Namespace) -> int:
    """Run the demo."""
    from tenure import demo as show

    return show.run(seconds=arguments.seconds, postgres=arguments.postgres, web=arguments.web)


def application_of(arguments: argparse.Namespace, session: Session) -> str:
    """The application given by --app or TENURE_APP, or the only one in the ledger; 'default' if there is none."""
    names = session.ledger.applications()
    listed = several(names, 20)
    given = arguments.app or os.environ.get("TENURE_APP")
    if given:
        if names and given not in names and not session.ledger.nodes(given):
            said = "--app" if arguments.app else "TENURE_APP"
            near = difflib.get_close_matches(given, names, 1)
            meant = f" Did you mean {near[0]!r}?" if near else ""
            raise ConfigurationError(f"{said}: no application {given!r} has jobs here; there are: {listed}.{meant}")
        return str(given)
    if len(names) > 1:
        raise ConfigurationError(
            f"--app: {len(names)} applications have jobs here: {listed}. Write --app NAME, or set TENURE_APP."
        )
    return names[0] if names else "default"


def _raise_epoch(arguments: argparse.Namespace, session: Session) -> int:
    before = session.epoch()
    session.unsettle(before)
    noticed = session.epoch()
    if not arguments.json:
        say(
            f"no new terms are granted from now on. Waiting {noticed.max_ttl:g} s, until no node can still believe in "
            "a forgotten term. If this is interrupted, candidates raise the epoch by themselves; if there are none, "
            "run `tenure epoch raise` again."
        )
    _wait(noticed.max_ttl, quiet=arguments.json)
    raised = session.raise_epoch(noticed)
    after = session.epoch()
    if arguments.json:
        as_json(_epoch(after))
    if not after.settled or after.number <= before.number:
        say(f"the epoch is still {after.number}: the database changed again in the meantime. Run this command again.")
        return 1
    if not arguments.json:
        by = "" if raised else " by a node in the meantime"
        show(
            f"the epoch was raised from {before.number} to {after.number}{by}: new terms begin at {after.number << 20}"
        )
    return 0


def _wait(seconds: float, *, quiet: bool) -> None:
    """Wait; on a terminal, count down."""
    end = boottime() + seconds
    while (left := end - boottime()) > 0:
        if not quiet and colourful(sys.stderr):
            print(f"\r\033[K{left:.0f} s left", end="", file=sys.stderr, flush=True)
        sleep(min(left, 1.0))
    if not quiet and colourful(sys.stderr):
        print("\r\033[K", end="", file=sys.stderr, flush=True)


def _resigned(
    arguments: argparse.Namespace, name: str, asked: int | None, after: Leader | None, text: str, *, code: int
) -> int:
    if arguments.json:
        as_json({"election": name, "asked_term": asked, "leader": after, "message": text})
    else:
        show(text)
    return code


def _record(record: TermRecord) -> list[str]:
    return [
        str(record.number),
        record.label,
        local(record.began_at),
        local(record.ended_at) or "…",
        record.began_by,
        record.ended_by or "",
        "" if record.gap is None else ("at most " if record.gap_at_most else "") + readable(record.gap.total_seconds()),
    ]


def _epoch(found: Epoch) -> dict[str, object]:
    return {
        "number": found.number,
        "settled": found.settled,
        "max_ttl": found.max_ttl,
        "recorded": asdict(found.recorded),
        "actual": asdict(found.actual),
    }


@contextmanager
def read_only_session(arguments: argparse.Namespace) -> Iterator[Session]:
    """A session that creates nothing."""
    store = store_of(arguments, migrate=False)
    store.prepare()
    session = store.session("cli", STATEMENT_TIMEOUT)
    try:
        yield session
    finally:
        with suppress(StoreUnavailable):
            session.close()


def store_of(arguments: argparse.Namespace, *, migrate: bool) -> Store:
    """The store given by --url or TENURE_URL."""
    check_shared(arguments)
    return store_for(arguments.url, schema=arguments.schema, migrate=migrate)


def check_shared(arguments: argparse.Namespace) -> None:
    """Refuse no store, and a store that no other process can see."""
    url = arguments.url or os.environ.get("TENURE_URL", "")
    if not url.strip():
        raise ConfigurationError(
            "no store was given, and TENURE_URL is not set. Write --url sqlite:///jobs.db, or "
            "--url postgresql://user@host/database."
        )
    if url.strip().startswith("memory:"):
        raise ConfigurationError(
            "store URL: memory:// lives inside one process, so the command line cannot see it. "
            "Write sqlite:///jobs.db for a file."
        )
