"""Advisory mode on real servers: PostgreSQL holds the lock, and nobody believes in what it does not hold.

Run as a script, this file is a worker: one candidate that writes down what it believes.
"""

import contextlib
import gc
import json
import logging
import os
import sys
import threading
import time
import uuid
import weakref
from pathlib import Path

import psycopg
import pytest

from harness import belief
from harness.processes import Worker
from harness.scratch import eventually
from tenure import Election
from tenure.cluster.messages import Wake
from tenure.core.cluster import Beat, NodeCard
from tenure.errors import ConfigurationError
from tenure.events import Elected, Lost
from tenure.stores import store_for
from tenure.stores.postgres.advisory import lock_key, open_session

NAME = "exporter"
GRACE = 0.8
TTL = 2.5
FAST = {
    "ttl": TTL,
    "heartbeat_every": 0.4,
    "attempt_timeout": 0.6,
    "session_grace": GRACE,
    "validate_every": 0.2,
    "validate_timeout": 0.25,
}
BACKENDS = "tenure:%:advisory"
GONE = "SELECT 1 FROM tenure.node WHERE id = %s AND state <> 'alive'"
HOLDERS = """
    SELECT pid FROM pg_locks
     WHERE locktype = 'advisory' AND granted AND (classid::bigint << 32) | objid::bigint = %s
       AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
"""


class TestOneLeads:
    def test_of_three_candidates_one_leads_and_the_database_knows_it(self, database, elections):
        three = [elections(label=f"n{i}") for i in range(3)]
        leader = leading(three)
        assert [e.is_leader for e in three].count(True) == 1
        found = leader.leader()
        assert (found.label, found.term, found.healthy) == (leader.label, leader.term.number, True)
        assert len(holders(database)) == 1
        assert [e.wait_until_leading(0) for e in three if e is not leader] == [None, None]

    def test_resigning_wakes_a_standby(self, elections):
        slow = {"ttl": 60, "heartbeat_every": 12, "attempt_timeout": 5, "session_grace": 20, "validate_every": 9}
        first = elections(**slow)
        assert first.wait_until_leading(5)
        second = elections(**slow)
        assert second.wait_until_leading(0) is None
        first.resign()
        assert second.wait_until_leading(8), "no poll is due for nine seconds: only the notice can have woken it"
        assert second.history(1)[0].began_by == "released"
        assert not first.is_leader

    def test_stopping_leaves_neither_lock_nor_session_and_starting_again_works(self, database, elections):
        election = elections()
        first = election.wait_until_leading(5)
        election.stop()
        assert holders(database) == []
        eventually(lambda: sessions(database) == 0, what="session gone")
        second = election.wait_until_leading(5)
        assert second.number > first.number

    def test_a_leader_that_is_asked_resigns_and_its_listeners_hear_of_all(self, elections):
        first, second = elections(), elections(start=False)
        heard = []
        first.on(Elected, Lost)(heard.append)
        term = first.wait_until_leading(5)
        second.start()
        assert second.ask_to_resign() == term.number
        assert second.wait_until_leading(5)
        eventually(lambda: len(heard) == 2, what="both events told")
        assert [type(event) for event in heard] == [Elected, Lost]
        assert heard[1].reason == "asked to resign"

    def test_a_withdrawn_candidate_holds_nothing_and_one_that_stands_again_leads(self, database, elections):
        election = elections(candidate=False)
        assert election.wait_until_leading(0.5) is None
        assert holders(database) == []
        election.stand()
        assert election.wait_until_leading(5)
        election.withdraw()
        eventually(lambda: holders(database) == [], what="lock given back")

    def test_the_body_of_terms_is_the_term(self, elections):
        election = elections()
        numbers = []
        for term in election.terms():
            numbers.append(term.number)
            assert term.wait(0.05)
            if len(numbers) == 2:
                break
        assert numbers[0] < numbers[1]
        assert not election.is_leader


class TestCrashes:
    def test_a_killed_leader_is_followed_after_its_grace(self, database, workers):
        first, second = workers("first", "second")
        leader, standby = first_and_standby(first, second)
        killed = time.monotonic()
        leader.kill()
        standby.wait_event(event="elected")
        assert time.monotonic() - killed > 1.25 * GRACE - FAST["validate_every"]
        assert began_by(database) == "session ended"
        workers.report().verify(terms=2)

    def test_a_frozen_leader_loses_lock_and_term_and_does_not_believe_when_it_thaws(self, database, workers):
        first, second = workers("first", "second")
        leader, standby = first_and_standby(first, second)
        term, node = standing(database)
        backend = holders(database)
        leader.freeze()
        assert holders(database) == backend, "its backend keeps the lock"
        standby.wait_event(event="elected", within=20)
        assert holders(database) not in ([], backend)
        assert began_by(database).startswith("dead: silent for")
        leader.thaw()
        leader.wait_event(event="lost", term=term)
        with psycopg.connect(database) as connection, pytest.raises(psycopg.Error, match=r"term .* is over"):
            connection.execute("SELECT tenure.fence(%s, %s, %s)", [NAME, term, node])
        standby.kill()
        leader.wait_event(event="elected", within=20)
        workers.report().verify(terms=3)

    def test_a_leader_behind_a_dead_network_stops_in_time_and_is_replaced(self, database, proxy, workers):
        cut_off = workers("cut_off", url=proxy.url(database.rpartition("/")[2]))
        cut_off.wait_event(event="elected")
        standby = workers("standby")
        standby.wait_event(event="joined")
        proxy.black_hole()
        cut = belief.now()
        cut_off.wait_event(event="lost")
        standby.wait_event(event="elected", within=20)
        proxy.heal()
        report = workers.report()
        report.verify(terms=2)
        believed_until = max(stretch.end for stretch in report.stretches if stretch.begin < cut)
        assert believed_until < cut + GRACE, "trust counts from before the last check that was answered"

    def test_terminating_sessions_again_and_again_never_makes_two_leaders(self, database, workers):
        three = workers("a", "b", "c")
        three[0].wait_event(event="joined")
        eventually(lambda: workers.report().entries, what="first term believed in")
        for believed in range(1, 5):
            terminate(database, holders(database))
            eventually(
                lambda believed=believed: workers.report().counts["terms"] > believed, what="next term believed in"
            )
        workers.report().verify(terms=5)

    def test_a_restarted_server_finds_its_leader_again(self, own_postgres):
        url = own_postgres.create_database()
        with Election(url, NAME, mode="advisory", **FAST) as election:
            before = election.wait_until_leading(5)
            own_postgres.restart()
            assert not before.wait(5), "belief ended with the session"
            assert election.wait_until_leading(10).number > before.number
            own_postgres.crash()
            own_postgres.start()
            eventually(lambda: election.is_leader and len(holders(url)) == 1, what="leading after a crash")


class TestLosingTheLock:
    def test_a_terminated_session_ends_belief_at_once_and_the_lock_is_tried_again_at_once(self, database, elections):
        election = elections()
        lost = threading.Event()
        election.on(Lost)(lambda _: lost.set())
        term = election.wait_until_leading(5)
        first_life = election._seat.id
        terminate(database, holders(database))
        assert lost.wait(2)
        assert not term.trusted
        assert term.reason.startswith("its session was lost")
        again = election.wait_until_leading(5)
        assert again.number > term.number
        assert again.node != first_life, "a session that is lost takes its identity with it"
        assert began_by(database) == "released"

    def test_a_lock_that_vanishes_from_a_living_session_ends_belief(self, elections):
        election = elections()
        term = election.wait_until_leading(5)
        unlock_behind_its_back(election)
        assert not term.wait(2)
        assert "lost the lock" in term.reason
        assert election.wait_until_leading(5).number > term.number

    def test_the_row_is_not_refreshed_without_the_lock(self, database, elections):
        election = elections(validate_every=0.35, heartbeat_every=0.1, validate_timeout=0.2)
        election.wait_until_leading(5)
        node = election._seat.id
        unlock_behind_its_back(election)
        eventually(lambda: beats(database).keys() - {node} >= {election._seat.id}, what="a new identity")
        seq = beats(database)[node]
        more_beats(database, election._seat.id)
        assert beats(database)[node] == seq

    def test_a_successor_waits_while_the_work_of_a_lost_session_goes_on(self, database, elections):
        first = elections()
        term = first.wait_until_leading(5)
        first.candidacy.enter_body()  # work that takes its time to stop
        second = elections()
        terminate(database, holders(database))
        began = time.monotonic()
        assert second.wait_until_leading(10).number > term.number
        assert time.monotonic() - began > 1.25 * GRACE - FAST["validate_every"]
        assert began_by(database) == "session ended"
        first.candidacy.leave_body(term)
        eventually(lambda: one(database, GONE, [term.node]), what="the goodbye")
        more_beats(database, second._seat.id)
        assert second.is_leader, "the goodbye of a lost identity takes nothing from its successor"

    def test_a_row_that_is_locked_for_a_while_costs_neither_session_nor_term(self, database, elections):
        election = elections()
        term = election.wait_until_leading(5)
        node = election._seat.id
        with psycopg.connect(database) as stuck:
            stuck.execute("SELECT 1 FROM tenure.node WHERE id = %s FOR UPDATE", [node])
            time.sleep(0.6)  # several beats give up waiting for it
            assert term.trusted
        more_beats(database, node)
        assert term.trusted
        assert election._seat.id == node

    def test_belief_ends_in_time_when_the_server_freezes(self, own_postgres):
        url = own_postgres.create_database()
        with Election(url, NAME, mode="advisory", **FAST) as election:
            term = election.wait_until_leading(5)
            own_postgres.freeze()
            time.sleep(GRACE)
            assert not term.trusted
            assert not term.wait(5)
            own_postgres.thaw()
            assert election.wait_until_leading(10).number > term.number


class TestZombies:
    def test_where_the_server_refuses_to_end_a_session_it_is_said_once_and_survived(
        self, postgres, database, workers, elections, caplog
    ):
        caplog.set_level(logging.WARNING, "tenure")
        zombie = workers("zombie")
        zombie.wait_event(event="elected")
        one(database, "SELECT 1 FROM pg_roles WHERE rolname = 'plain'") or run(database, "CREATE ROLE plain LOGIN")
        run(database, "GRANT USAGE ON SCHEMA tenure TO plain")
        run(database, "GRANT ALL ON ALL TABLES IN SCHEMA tenure TO plain")
        run(database, "GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA tenure TO plain")
        standby = elections(url=postgres.url(database.rpartition("/")[2], user="plain"))
        zombie.freeze()
        eventually(lambda: refusals(caplog), within=15, what="the refusal logged")
        time.sleep(3 * FAST["validate_every"])
        assert len(refusals(caplog)) == 1
        assert not standby.is_leader
        zombie.kill()
        assert standby.wait_until_leading(5)

    def test_the_same_key_in_another_database_is_not_ours(self, postgres, elections):
        other = postgres.create_database()
        with psycopg.connect(other, autocommit=True) as neighbour:
            neighbour.execute("SELECT pg_advisory_lock(%s)", [lock_key("tenure", NAME)])
            election = elections()
            assert election.wait_until_leading(5)
            unlock_behind_its_back(election)
            eventually(lambda: not election.is_leader, what="loss noticed")
            assert election.wait_until_leading(5)
            assert neighbour.execute("SELECT 1").fetchone() == (1,)
        postgres.drop_database(other)

    def test_only_a_session_whose_node_is_not_alive_is_ended(self, database):
        store = store_for(database)
        store.prepare()
        frozen, successor, watcher = (open_session(store, NAME, "test", 2.0) for _ in range(3))
        first, second = enter(frozen), enter(successor)
        assert frozen.lock()
        assert watcher.evict() == [], "alive"
        assert watcher.declare(first, ("row", 1), "silent")
        assert [label for label, _, _ in watcher.evict()] == [first]
        eventually(successor.lock, what="lock free")
        assert watcher.evict() == [], "the successor is alive: it keeps the lock that the dead one had"
        assert successor.holds()
        successor.leave(second, "left")
        for session in (frozen, successor, watcher):
            session.close()

    def test_a_row_that_looks_vacant_ends_no_session(self, database, elections):
        pair = [elections(), elections()]
        leading(pair)
        backend = holders(database)
        run(database, "UPDATE tenure.election SET state = 'released'")
        more_beats(database, *(election._seat.id for election in pair))
        assert holders(database) == backend


class TestRefused:
    def test_a_pooler(self, pgbouncer, database):
        url = pgbouncer.url(database.rpartition("/")[2])
        with pytest.raises(ConfigurationError, match=r"does not work through a pooler.*leave mode out"):
            Election(url, NAME, mode="advisory", **FAST).start()

    @pytest.mark.parametrize("url", ["sqlite:///nowhere.db", "memory://advisory"])
    def test_stores_without_advisory_locks(self, url):
        with pytest.raises(ConfigurationError, match="needs PostgreSQL"):
            Election(url, NAME, mode="advisory")

    def test_an_election_that_is_run_by_leases(self, database):
        with Election(database, NAME, ttl=2.5) as lease:
            assert lease.wait_until_leading(5)
            with pytest.raises(ConfigurationError, match="is run in mode 'lease'"):
                Election(database, NAME, mode="advisory", **FAST).start()
            assert lease.is_leader

    def test_an_election_that_became_one_of_leases_later_is_said_once(self, database, elections, caplog):
        election = elections(candidate=False)
        run(database, "INSERT INTO tenure.election (name, mode) VALUES (%s, 'lease')", [NAME])
        election.stand()

        def said():
            return [record for record in caplog.records if "is run in mode 'lease'" in record.getMessage()]

        eventually(said, within=15, what="the other mode said")
        more_beats(database, election._seat.id)
        assert election.wait_until_leading(0) is None
        assert holders(database) == []
        assert len(said()) == 1
        run(database, "UPDATE tenure.election SET mode = 'advisory'")
        assert election.wait_until_leading(5), "as the message says"

    def test_a_lease_in_an_election_of_locks(self, database, elections, caplog):
        election = elections()
        assert election.wait_until_leading(5)
        with Election(database, NAME, ttl=2.5) as lease:
            assert lease.wait_until_leading(0.5) is None
            assert election.is_leader
        assert any("mode" in record.message for record in caplog.records)


class TestTheTrapsOfBareLocks:
    """What goes wrong with a lock of one's own (test_advisory_traps.py) does not with an `Election`."""

    def test_nobody_else_can_give_the_connection_back_or_collect_it(self, database):
        election = Election(database, NAME, mode="advisory", **FAST)
        assert election.wait_until_leading(5)
        stop, gone = election.stop, weakref.ref(election)
        del election
        for _ in range(3):
            gc.collect()
        assert gone() is not None
        more_beats(database, gone()._seat.id)
        assert gone().is_leader
        assert len(holders(database)) == 1
        stop()

    def test_an_election_that_nobody_refers_to_keeps_its_lock_while_it_is_started(self, database):
        def start_and_forget():
            election = Election(database, NAME, mode="advisory", **FAST)
            election.start()
            return weakref.ref(election.candidacy)

        kept = start_and_forget()
        gc.collect()
        eventually(lambda: len(holders(database)) == 1, what="lock taken")
        gc.collect()
        more_beats(database, kept()._seat.id)
        assert len(holders(database)) == 1
        kept().stop(5.0)

    def test_the_lock_is_on_a_connection_of_its_own_and_taken_once(self, database, elections):
        election = elections()
        for _ in range(3):
            assert election.wait_until_leading(5)
            election.resign()
            eventually(lambda: holders(database) == [], what="one unlock is enough")
        assert election.wait_until_leading(5)
        session = election._seat.session()
        assert session._connection.info.backend_pid not in holders(database), "questions go over another one"
        session.close()

    @pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
    def test_a_forked_child_is_nobody_and_takes_nothing_with_it(self, database, elections):
        election = elections()
        term = election.wait_until_leading(5)
        child = os.fork()
        if child == 0:
            honest = not election.is_leader and not term.trusted and election._seat.id == ""
            os._exit(0 if honest else 1)
        assert os.waitpid(child, 0)[1] == 0
        more_beats(database, election._seat.id)
        assert term.trusted
        assert len(holders(database)) == 1

    def test_a_silent_connection_is_kept_alive(self, elections):
        election = elections(heartbeat_every=0.5, validate_every=0.3, validate_timeout=0.2, keepalive_every=0.1)
        election.wait_until_leading(5)
        session = election._seat._parts.loop._session
        before = session.said_at
        eventually(lambda: session.said_at > before, within=0.3, what="a keepalive")


@pytest.fixture
def elections(database):
    """Makes elections in this process; all are stopped."""
    with contextlib.ExitStack() as stack:

        def make(*, url=database, start=True, **settings):
            election = Election(url, NAME, mode="advisory", **{**FAST, **settings})
            stack.callback(election.stop, 0.5)
            if start:
                election.start()
            return election

        yield make


@pytest.fixture
def workers(database, tmp_path):
    """Starts candidates as processes; `report()` judges what they believed."""

    class Workers:
        def __call__(self, *names, url=database):
            started = [Worker(Path(__file__), url, tmp_path, name).start() for name in names]
            return started[0] if len(started) == 1 else started

        def report(self):
            return belief.check(tmp_path)

    return Workers()


def leading(elections):
    eventually(lambda: any(e.is_leader for e in elections), what="somebody leads")
    return next(e for e in elections if e.is_leader)


def first_and_standby(first, second):
    for worker in (first, second):
        worker.wait_event(event="joined")
    eventually(lambda: any('"elected"' in line for w in (first, second) for line in w.lines), what="somebody leads")
    pair = (first, second) if any('"elected"' in line for line in first.lines) else (second, first)
    pair[0].wait_event(event="elected")
    return pair


def holders(url):
    with psycopg.connect(url, autocommit=True) as connection:
        return [pid for (pid,) in connection.execute(HOLDERS, [lock_key("tenure", NAME)])]


def beats(url):
    with psycopg.connect(url, autocommit=True) as connection:
        return dict(connection.execute("SELECT id::text, seq FROM tenure.node").fetchall())


def more_beats(url, *nodes, count=3):
    """Each of them beats so many times more, which it does only after a check."""
    before = beats(url)
    eventually(lambda: all(beats(url)[node] >= before[node] + count for node in nodes), what=f"{count} beats of each")


def sessions(url):
    return one(
        url,
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name LIKE %s",
        [BACKENDS],
    )[0]


def terminate(url, pids):
    run(url, "SELECT pg_terminate_backend(pid) FROM unnest(%s::int[]) AS pid", [pids])


def enter(session):
    """A node with a session lock and one beat, as the loop makes it."""
    node = str(uuid.uuid4())
    advert = session.hold_session_lock(node, GRACE)
    session.join(NodeCard(node, node, TTL))
    session.beat(Beat(node, 1, 0.0, 0.0, advert, (NAME,)))
    return node


def standing(url):
    return one(url, "SELECT term, holder FROM tenure.election WHERE name = %s AND state = 'held'", [NAME])


def began_by(url):
    return one(url, "SELECT began_by FROM tenure.term WHERE election = %s ORDER BY number DESC LIMIT 1", [NAME])[0]


def refusals(caplog):
    return [record for record in caplog.records if "that is not a live node has its lock" in record.message]


def unlock_behind_its_back(election):
    """What a pool's reset does. Only the session itself can, on the thread of its loop."""
    loop, done = election._seat._parts.loop, threading.Event()
    receive = loop._receive

    def reset(message):
        loop._receive = receive
        loop._session._connection.execute("SELECT pg_advisory_unlock_all()")
        done.set()
        receive(message)

    loop._receive = reset
    loop.post(Wake())
    assert done.wait(5)


def one(url, sql, values=None):
    with psycopg.connect(url, autocommit=True) as connection:
        return connection.execute(sql, values).fetchone()


def run(url, sql, values=None):
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(sql, values)


def work(url, directory, name):
    def say(**event):
        print(json.dumps(event), flush=True)

    recorder = belief.Recorder(directory, name)
    with Election(url, NAME, mode="advisory", label=name, **FAST) as election:
        say(event="joined")
        for term in election.terms():
            told = False
            while recorder.sample(NAME, term.number, lambda term=term: term.trusted):
                if not told:  # after it is written down: who hears of the term finds it in the history
                    say(event="elected", term=term.number)
                told = True
                time.sleep(0.002)
            say(event="lost", term=term.number, reason=term.reason)


if __name__ == "__main__":
    work(*sys.argv[1:])
