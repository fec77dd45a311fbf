"""Servers that crash, freeze, refuse and fail over, and networks that swallow, while three candidates go on (promises
G1 and G2).

As in `test_belief_processes.py`: real processes, several blows, and a verdict over what everybody believed at every
moment.
"""

import signal
import time
from contextlib import ExitStack, contextmanager, suppress

import psycopg
import pytest

from harness import scratch
from harness.cluster import Cluster
from harness.components import need
from harness.postgres import Postgres
from harness.proxy import Proxy

TTL = 1.0
FAST_SESSIONS = {"validate_every": 0.1, "validate_timeout": 0.15, "session_grace": 0.5}


@pytest.fixture(scope="module")
def rough():
    """A server to be treated badly. Each scene leaves it running."""
    need("postgres")
    with Postgres(settings={"max_connections": "30", "superuser_reserved_connections": "0"}) as server:
        yield server


@pytest.fixture
def database(postgres):
    url = postgres.create_database()
    yield url
    postgres.drop_database(url)


def test_a_crashed_server_comes_back_to_one_leader(rough, tmp_path):
    cluster, term = Cluster(tmp_path, rough.create_database(), ttl=TTL).start(), 0
    for pause in (0.0, 1.2 * TTL):  # shorter and longer than everybody's trust
        leader, term = cluster.leader(after=term)
        leader.until(event="acts", term=term)
        rough.crash()
        time.sleep(pause)
        rough.start()
        scratch.eventually(lambda: any(worker.leads for worker in cluster.workers), within=15)
        _, term = cluster.leader()
        term -= 1  # the same one may have gone on: one more term is not asked for
    assert cluster.leader()
    cluster.verify(terms=2)


def test_terminated_sessions_are_made_anew(postgres, database, tmp_path):
    cluster = Cluster(tmp_path, database, ttl=2).start()
    name = database.rpartition("/")[2]
    cluster.leader()

    def terminate() -> list[tuple[object, ...]]:
        return postgres.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s AND application_name LIKE 'tenure%%'",
            [name],
        )

    for _ in range(5):
        scratch.eventually(terminate, what="sessions to terminate")
        time.sleep(0.2)
    cluster.leader()
    time.sleep(0.5)
    leader, term = cluster.leader()
    leader.kill()
    cluster.leader(after=term)
    cluster.verify(terms=2)


@pytest.mark.parametrize("blow", ["black hole", "lost answers", "refused", "late", "cut again and again"])
def test_a_leader_that_is_cut_off_stops_believing_in_time(postgres, database, tmp_path, blow):
    name = database.rpartition("/")[2]
    with ExitStack() as stack:
        networks = [stack.enter_context(Proxy(postgres.port)) for _ in range(3)]
        cluster, term = Cluster(tmp_path, database, ttl=TTL), 0
        of = {cluster.add(network.url(name), wait=False): network for network in networks}
        for worker in of:
            worker.wait_event(event="started", within=20)
        for _ in range(2):
            leader, term = cluster.leader(after=term)
            network = of[leader]
            match blow:
                case "black hole":
                    network.black_hole()
                case "lost answers":
                    network.black_hole(answers_only=True)
                case "refused":
                    network.refuse()
                    network.cut()
                case "late":
                    network.hold()
                case _:
                    for _ in range(8):
                        network.cut()
                        time.sleep(0.1)
            if blow != "cut again and again":  # these reconnect quickly enough, or do not: both are right
                cluster.leader(after=term)
                leader.until(event="over", term=term)
            network.heal()
            leader.say(do="resign")
        cluster.leader(after=term)
        cluster.verify(terms=3)


def test_a_leader_whose_session_was_seen_to_end_stops_believing_in_time(postgres, database, tmp_path):
    """Its ttl would let it believe for much longer: others take over as soon as the session's grace is over."""
    name = database.rpartition("/")[2]
    with Proxy(postgres.port) as network:
        cluster = Cluster(tmp_path, database, ttl=30, host_evidence=False, **FAST_SESSIONS)
        leader = cluster.add(network.url(name))
        _, term = cluster.leader()
        cluster.start(2)
        network.refuse()
        network.cut()
        cluster.leader(after=term, within=15)
        network.heal()
        leader.until(event="over", term=term)
        cluster.verify(terms=2)


def test_a_forked_child_does_not_keep_its_parents_session_alive(postgres, database, tmp_path):
    cluster = Cluster(tmp_path, database, ttl=30, host_evidence=False, **FAST_SESSIONS).start()
    leader, term = cluster.leader()
    held = (
        "SELECT session_nonce FROM tenure.election e JOIN tenure.node n ON n.id = e.holder"  # else its ttl alone counts
    )
    name = database.rpartition("/")[2]
    cluster.eventually(lambda: postgres.execute(held, dbname=name)[0][0])
    leader.say(do="fork")
    child = leader.wait_event(event="child")["pid"]
    try:
        leader.kill()
        cluster.leader(after=term, within=15)
    finally:
        scratch.send([child], signal.SIGKILL)
    cluster.verify(terms=2)


def test_a_frozen_server_ends_all_belief_and_then_somebody_leads(rough, tmp_path):
    cluster, term = Cluster(tmp_path, rough.create_database(), ttl=TTL).start(), 0
    for _ in range(2):
        leader, term = cluster.leader(after=term)
        rough.freeze()
        leader.until(event="over", term=term)
        rough.thaw()
    cluster.leader(after=term)
    cluster.verify(terms=3)


def test_a_killed_leader_is_followed_behind_a_transaction_pooler(pgbouncer, database, tmp_path):
    through = pgbouncer.url(database.rpartition("/")[2])
    for evidence, ttl in ((True, 10.0), (False, TTL)):
        folder = tmp_path / str(evidence)
        folder.mkdir()
        cluster = Cluster(folder, database, ttl=ttl, host_evidence=evidence, name=f"pooled {evidence}", effects=False)
        for _ in range(3):
            cluster.add(through)
        term = 0
        for _ in range(2):
            leader, term = cluster.leader(after=term)
            leader.kill()
        cluster.leader(after=term)
        cluster.verify(terms=3)


@pytest.mark.parametrize("row", ["its node", "the election"])
def test_a_row_that_somebody_else_locks(database, tmp_path, row):
    cluster = Cluster(tmp_path, database, ttl=TTL, effects=False).start()
    leader, term = cluster.leader()
    node = leader.until(event="leads", term=term)["node"]
    if row == "its node":
        with locked(database, f"SELECT FROM tenure.node WHERE id = '{node}' FOR UPDATE"):
            leader.until(event="over", term=term)  # it cannot beat
            time.sleep(TTL)
    else:
        with locked(database, "SELECT FROM tenure.election FOR UPDATE"):
            time.sleep(1.5 * TTL)
            assert leader.leads == term, "beats do not need that row"
            leader.kill()
            time.sleep(0.3)
            assert not any(worker.leads for worker in cluster.others(leader)), "and nobody is granted without it"
    _, newer = cluster.leader(after=term)
    with locked(database, "LOCK TABLE tenure.term IN ACCESS EXCLUSIVE MODE"):  # every statement that writes times out
        for worker in cluster.others(leader):
            worker.say(do="resign")
        time.sleep(0.5)
    cluster.leader(after=newer)
    cluster.verify(terms=3)


def test_a_deadlock_is_survived(postgres, database, tmp_path):
    """A release takes the election's row and then the term's; somebody else takes them the other way round."""
    name = database.rpartition("/")[2]
    postgres.execute(
        f"ALTER DATABASE {name} SET deadlock_timeout = '20ms'"
    )  # ours looks first, and is the one to give way
    cluster, term = Cluster(tmp_path, database, ttl=2, effects=False).start(), 0
    for _ in range(2):
        leader, term = cluster.leader(after=term)
        with psycopg.connect(database) as other:
            other.execute("SET deadlock_timeout = '10s'")
            other.execute("SELECT FROM tenure.term FOR UPDATE")
            leader.say(do="resign")
            cluster.eventually(lambda: cluster.query("SELECT 1 FROM pg_locks WHERE NOT granted"))
            other.execute("SELECT FROM tenure.election FOR UPDATE")
    cluster.leader(after=term)
    cluster.eventually(
        lambda: postgres.execute("SELECT deadlocks FROM pg_stat_database WHERE datname = %s", [name])[0][0] >= 1
    )
    cluster.verify(terms=3)


def test_a_server_that_turns_read_only_and_back(rough, tmp_path):
    cluster, term = Cluster(tmp_path, rough.create_database(), ttl=TTL).start(), 0
    for _ in range(2):
        leader, term = cluster.leader(after=term)
        set_server(rough, "default_transaction_read_only", "on")
        leader.until(event="over", term=term)
        set_server(rough, "default_transaction_read_only", "off")
    cluster.leader(after=term)
    cluster.verify(terms=3)


def test_full_connection_slots(rough, tmp_path):
    url = rough.create_database()
    cluster = Cluster(tmp_path, url, ttl=TTL, effects=False).start()
    leader, term = cluster.leader()
    with ExitStack() as stack:
        hogs = [stack.enter_context(psycopg.connect(rough.url(), autocommit=True, application_name="hog"))]

        def fill():
            with suppress(psycopg.OperationalError):
                while True:
                    hogs.append(
                        stack.enter_context(psycopg.connect(rough.url(), autocommit=True, application_name="hog"))
                    )

        fill()
        deadline = time.monotonic() + 10
        while leader.leads == term:
            assert time.monotonic() < deadline
            hogs[0].execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE 'tenure%'"
            )
            fill()
        assert not any(worker.leads for worker in cluster.workers)
    cluster.leader(after=term)
    cluster.verify(terms=2)


def test_wall_clocks_that_jump_by_hours_change_nothing(shifted_clock, tmp_path):
    need("postgres")
    with Postgres(env=shifted_clock.env) as server:
        cluster = Cluster(tmp_path, server.create_database(), ttl=TTL).start(2)
        leader, term = cluster.leader()
        for hours in (2, -2, 0):
            shifted_clock.wall(hours * 3600)
            time.sleep(0.6 * TTL)
            assert leader.leads == term, cluster.stories()
        shifted_clock.wall(7200)
        cluster.add()
        leader.kill()
        leader, term = cluster.leader(after=term)
        leader.freeze()  # now by the watch alone, with the clock going back in the middle
        time.sleep(0.3 * TTL)
        shifted_clock.wall(-7200)
        cluster.leader(after=term)
        leader.thaw()
        leader.until(event="over", term=term)
        cluster.verify(terms=3)


@contextmanager
def locked(url, statement):
    """Hold a lock, in a transaction that does nothing else."""
    with psycopg.connect(url) as connection:
        connection.execute(statement.encode())
        yield


def set_server(server, name, value):
    """Change a setting for all sessions. The change itself must get past a server that is read-only."""
    with psycopg.connect(server.url(), autocommit=True) as connection:
        connection.execute("SET default_transaction_read_only = off")
        connection.execute(f"ALTER SYSTEM SET {name} = '{value}'".encode())
        connection.execute("SELECT pg_reload_conf()")
