"""Names, arguments and words are data: whatever they say, they come back as they were, and nothing else happens."""

import json
import threading
from contextlib import contextmanager

import pytest
from hypothesis import example, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from harness.scratch import eventually
from security import battery
from security.drawn import bounded
from security.rows import PostgresHand, SqliteHand
from tenure import Election, Scheduler
from tenure.core.messages import RunQuery, RunRequest
from tenure.core.records import Change
from tenure.errors import ConfigurationError
from tenure.stores import store_for
from tenure.util.names import named

HARM = (
    "'; DROP TABLE tenure_job; --",
    '"; DROP SCHEMA tenure CASCADE; --',
    "$$; SELECT pg_sleep(10); $$",
    "\\'; DELETE FROM tenure.run; --",
    "%s %(name)s {schema} {} :name ?1 $1",
    "{tenure}",
    '{"a","b"}',
    "E'\\x41'",
    "a\\",
    "NULL",
    "선거 🗳️ \u202e",
)
TEXT = st.one_of(
    st.sampled_from(HARM), st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=200)
)
NAMES = TEXT.filter(lambda text: text.strip())


@pytest.fixture(params=["sqlite", "postgres"])
def hand(request):
    made = (
        SqliteHand(request.getfixturevalue("sqlite_url"))
        if request.param == "sqlite"
        else PostgresHand(request.getfixturevalue("database"))
    )
    store_for(made.url).prepare()
    return made


@contextmanager
def ledger_of(hand):
    session = store_for(hand.url).session("test", 5.0)
    try:
        yield session
    finally:
        session.close()


def test_names_and_arguments_come_back_as_they_were(hand):
    with ledger_of(hand) as session:
        ledger = session.ledger

        @hypothesis_settings(bounded, max_examples=60)
        @given(application=NAMES, name=NAMES, word=TEXT, key=TEXT)
        @example(application=HARM[0], name=HARM[1], word=HARM[2], key=HARM[3])
        @example(application=HARM[4], name=HARM[5], word=HARM[6], key=HARM[8])
        def check(application, name, word, key):
            assert named(name, "job name") == name
            kwargs = json.dumps({word: [word, {word: word}]}, ensure_ascii=False)
            change = battery.change(application, name, Change.ADDED, queue=word)
            spec = battery.JobSpec(application, name, word, None, battery.Rules(queue=word), kwargs)
            changed = ledger.change(battery.JobChange(application, name, change.what, spec, by=word, why=word))
            row = changed or ledger.jobs(application, name)[0]
            assert (row.spec.application, row.spec.name) == (application, name)
            if changed is not None:
                assert (row.spec.function, row.spec.kwargs, row.spec.rules.queue) == (word, kwargs, word)
                assert ledger.changes(application, name)[-1].why == word
            (run,) = ledger.request_runs([RunRequest(application, name, key, None, kwargs=kwargs, by=word)])
            (found,) = ledger.runs(RunQuery(application, name, id=run.id))
            assert (found.name, found.key) == (name, key)
            assert word in ledger.functions(application) or changed is None
            assert ledger.guard(name, key, None, word) or True
            assert ledger.cancel(run.id, word, word).reason

        check()
        assert session.ledger.applications()


def test_the_names_of_elections_are_only_names(hand):
    for name in HARM[:-1]:
        with Election(hand.url, name, ttl=6, heartbeat_every=0.5, attempt_timeout=1) as election:
            assert election.wait_until_leading(10), name
            assert election.leader().election == name


@pytest.mark.parametrize("name", ["", " ", "a\0b", "a\nb", "\x1b[2J", "\ud800", "x" * 201, 7, None, b"x"])
def test_names_that_cannot_be_shown_are_refused(name):
    with pytest.raises(ConfigurationError):
        named(name, "job name")


def test_questions_about_a_name_that_cannot_be_shown_are_refused_by_every_store(hand):
    for url in (hand.url, "memory://names"):
        scheduler = Scheduler(url, application="names")
        for ask in (scheduler.runs, scheduler.stats, scheduler.audit, scheduler.why, scheduler.find_job):
            for name in ("a\0b", "\ud800"):
                with pytest.raises(ConfigurationError, match="cannot be shown"):
                    ask(name)


@pytest.mark.parametrize(
    "schema", ["tenure; DROP TABLE x", 'a"b', "A", "", "a" * 42, "1a", "a-b", "tenure\n", "pg.x", "ü"]
)
def test_a_schema_that_is_no_plain_name_is_refused(schema):
    with pytest.raises(ConfigurationError, match="plain lower-case name"):
        store_for("postgresql:///x", schema=schema)


@pytest.mark.parametrize(
    "words", ["nul \0 inside", "half a character \ud800", "\x1b[2J\r\n", "'; DROP TABLE tenure_run; --"]
)
@pytest.mark.timeout(90)
def test_whatever_a_body_says_its_run_ends_and_so_do_the_others(hand, words):
    """What one body raises or logs goes to the ledger together with the endings of others."""
    scheduler = Scheduler(hand.url, ttl=6, heartbeat_every=0.5, attempt_timeout=1)
    ran = threading.Event()

    @scheduler.job(retries=1, backoff=0)
    def raises(run):
        run.log(words)
        ran.set()
        raise RuntimeError(words)

    @scheduler.job
    def fine():
        pass

    scheduler.start()
    try:
        bad, good = scheduler.run_now("raises"), scheduler.run_now("fine")
        eventually(lambda: scheduler.find_run(bad.id).state == "failed", within=15, what="an end of it")
        eventually(lambda: scheduler.find_run(good.id).state == "succeeded", within=15, what="an end of the other")
        assert ran.is_set()
        assert "RuntimeError" in scheduler.find_run(bad.id).reason
        scheduler.pause("fine", why="'; DROP TABLE tenure_job; --")
        scheduler.resume("fine")
    finally:
        assert scheduler.stop(5)
