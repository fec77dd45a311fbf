"""Processes that are killed, frozen and forked while they lead (promises G1 and G2).

Every scene runs real candidates, does something terrible to the one that leads, several times, and ends with a verdict
over what all of them believed at every moment and what they committed.
"""

import os
import signal
import sqlite3
import time
from pathlib import Path

import pytest

from harness import belief, scratch
from harness.cluster import Cluster
from harness.postgres import Postgres
from harness.proxy import Proxy

FAST_SESSIONS = {"validate_every": 0.1, "validate_timeout": 0.15, "session_grace": 0.5}


def test_a_killed_leader_is_followed_at_once(url, tmp_path):
    cluster, term = Cluster(tmp_path, url, ttl=10).start(), 0  # the default: proof of death does not wait for it
    for _ in range(3):
        leader, term = cluster.leader(after=term)
        leader.kill()
        cluster.add()
    cluster.leader(after=term)
    report = cluster.verify(terms=4)
    assert report.largest_gap < 5


def test_a_killed_leader_is_followed_after_its_ttl_where_there_is_no_evidence(url, tmp_path):
    cluster, term = Cluster(tmp_path, url, ttl=1, host_evidence=False, session_evidence=False).start(), 0
    for _ in range(2):
        leader, term = cluster.leader(after=term)
        leader.kill()
    cluster.leader(after=term)
    report = cluster.verify(terms=3)
    assert min(report.gaps) > 0.5, "without evidence nobody can know before the ttl"


def test_a_killed_leader_on_another_host_is_known_by_its_session(database, tmp_path):
    cluster, term = Cluster(tmp_path, database, ttl=30, host_evidence=False, **FAST_SESSIONS).start(4), 0
    for _ in range(3):
        leader, term = cluster.leader(after=term)
        leader.kill()
    cluster.leader(after=term)
    report = cluster.verify(terms=4)
    assert report.largest_gap < 15


def test_a_fenced_election_changes_hands_on_a_hint_and_its_work_stays_in_order(database, tmp_path):
    cluster, term = Cluster(tmp_path, database, ttl=30, host_evidence=False, fenced=True).start(4), 0
    for _ in range(3):
        leader, term = cluster.leader(after=term)
        leader.kill()
    cluster.leader(after=term)
    cluster.verify(terms=4)


@pytest.mark.parametrize("frozen_for", ["until its successor leads", "past its deadline only"])
def test_a_frozen_leader_does_not_believe_when_it_thaws(url, tmp_path, frozen_for):
    ttl = 1.0
    cluster, term = Cluster(tmp_path, url, ttl=ttl).start(), 0
    for _ in range(2):
        leader, term = cluster.leader(after=term)
        leader.until(event="acts", term=term)
        cluster.freeze(leader)
        if frozen_for == "until its successor leads":
            cluster.leader(after=term)
        else:
            time.sleep(0.95 * ttl)  # 0.8 ttl is its own deadline, and nobody else may act before a ttl
        leader.thaw()
        leader.until(event="over", term=term)
        if frozen_for == "until its successor leads":
            leader.until(event="refused", term=term)  # its work went on where it had stopped
    cluster.leader(after=term)
    cluster.verify(terms=3)


def test_a_forked_child_is_nobody_and_keeps_nothing_alive(url, tmp_path):
    # Without effects: a transaction of the application's that was open at the fork stays open in the child, and holds the fence.
    cluster, term, children = Cluster(tmp_path, url, ttl=5, session_grace=2).start(effects=False), 0, []
    for _ in range(2):
        leader, term = cluster.leader(after=term)
        leader.say(do="fork")
        child = leader.wait_event(event="child")
        children.append(child["pid"])
        assert child["leads"] is False
        assert child["node"] == ""
        assert leader.leads == term, "the parent goes on"
        began = time.monotonic()
        leader.kill()
        cluster.leader(after=term)
        assert time.monotonic() - began < 4, "the child holds no lock and no session of its parent"
        assert scratch.running(child["pid"])
        cluster.add(effects=False)
    scratch.send(children, signal.SIGKILL)
    report = cluster.verify(terms=3)
    assert not [entry for entry in report.entries if entry.node.endswith(tuple(f".{pid}" for pid in children))]


@pytest.mark.parametrize("parent_ends", ["it stops", "it is killed"])
def test_forked_children_take_part_under_identities_of_their_own(url, tmp_path, parent_ends):
    """As gunicorn does with --preload: the application, and its election, are there before the workers."""
    cluster = Cluster(tmp_path, url, ttl=2)
    parent = cluster.add(effects=False)
    _, term = cluster.leader()
    children = set()
    for _ in range(3):
        parent.say(do="fork", take_part=True)
        children.add(parent.wait_event(event="child")["pid"])
    nodes = "tenure_node" if url.startswith("sqlite") else "tenure.node"
    cluster.eventually(lambda: cluster.query(f"SELECT count(*) FROM {nodes} WHERE state = 'alive'") == [(4,)])
    if parent_ends == "it stops":
        parent.say(do="stop")
        parent.wait_event(event="stopped")
    else:
        parent.kill()
    for _ in range(2):
        term, pid = next_deed(cluster, after=term)
        assert pid in children
        os.kill(pid, signal.SIGKILL)
        children.remove(pid)
    next_deed(cluster, after=term)
    scratch.send(list(children), signal.SIGKILL)
    cluster.verify(terms=4)


def test_a_child_of_a_process_that_had_the_file_open_is_refused(sqlite_url, tmp_path):
    """SQLite's locks do not work in it, so that it could believe beside the others."""
    cluster = Cluster(tmp_path, sqlite_url, ttl=2)
    parent = cluster.add()
    _, term = cluster.leader()
    parent.until(event="acts", term=term)  # a connection of the application
    parent.say(do="fork", take_part=True)
    child = parent.wait_event(event="child")["pid"]
    said = cluster.log / f"{child}.stderr"
    cluster.eventually(lambda: said.exists() and "forked while its parent had the file open" in said.read_text())
    scratch.eventually(lambda: not scratch.running(child))
    cluster.verify()


def test_work_that_outlives_its_leader_is_waited_for(url, tmp_path):
    cluster, term = Cluster(tmp_path, url, ttl=5, session_evidence=False).start(), 0
    for pdeathsig in (False, True):
        leader, term = cluster.leader(after=term)
        leader.say(do="child", for_seconds=0.7, pdeathsig=pdeathsig)
        leader.wait_event(event="child")
        leader.kill()
        cluster.leader(after=term, within=4.5)
    report = cluster.verify(terms=3)
    assert_work_ended_first(report)


def test_work_that_will_not_end_is_waited_for_until_the_ttl(url, tmp_path):
    cluster = Cluster(tmp_path, url, ttl=1, session_evidence=False).start()
    leader, term = cluster.leader()
    leader.say(do="child", for_seconds=30, act_until_parent_ends=True)
    child = leader.wait_event(event="child")["child"]
    cluster.eventually(lambda: any('"acts"' in path.read_text() for path in cluster.log.iterdir()))
    leader.kill()
    cluster.leader(after=term)
    assert scratch.running(child), "it still has the lock"
    scratch.send([child], signal.SIGKILL)
    assert_work_ended_first(cluster.verify(terms=2))


def test_a_leader_whose_lock_was_closed_by_the_application_starts_anew(url, tmp_path):
    cluster = Cluster(tmp_path, url, ttl=1, session_evidence=False).start()
    leader, term = cluster.leader()
    leader.say(do="close_lock")
    leader.until(event="lost", term=term)
    for worker in cluster.others(leader):
        worker.kill()
    assert cluster.leader(after=term)[0] is leader, "the one that lost its lock leads again"
    cluster.verify(terms=2)


def test_nobody_hears_yes_after_the_deadline(url, tmp_path, request):
    network = None
    if url.startswith("postgres"):
        network = Proxy(request.getfixturevalue("postgres").port)
        request.addfinalizer(network.close)
    cluster = Cluster(tmp_path, url, ttl=1)
    leader = cluster.add(network.url(url.rpartition("/")[2]) if network else None)
    _, term = cluster.leader()
    cluster.start(2)
    for _ in range(2):
        leader.say(do="readers", threads=8)
        leader.wait_event(event="reading")
        if network:
            network.black_hole()
        else:
            moved = hide(url)
        said = leader.wait_event(event="read")
        if network:
            network.heal()
        else:
            show(moved)
        assert said["readers"] == 8
        assert said["problems"] == []
        assert said["last"] < said["until"]
        for other in cluster.others(leader):
            other.say(do="resign")
        _, term = cluster.leader(after=term)
        while not leader.leads:
            for other in cluster.others(leader):
                other.say(do="resign")
            time.sleep(0.05)
    cluster.verify(terms=3)


def test_a_thread_that_keeps_the_interpreter_to_itself_costs_no_term(url, tmp_path):
    cluster = Cluster(tmp_path, url, ttl=2).start()
    leader, term = cluster.leader()
    leader.say(do="hold_gil", seconds=1.0)  # a beat is at most 0.2 s old, and lasts for 1.6 s
    leader.wait_event(event="gil")
    time.sleep(0.8)
    assert leader.leads == term, cluster.stories()
    cluster.verify()


def test_resigning_in_the_middle_of_fenced_work_all_the_time(url, tmp_path):
    cluster = Cluster(tmp_path, url, ttl=2).start(3, nodes=3, storm=True)
    term = 0
    for _ in range(10):
        _, term = next_term(cluster, term)
    cluster.verify(terms=10)


def test_a_users_long_transaction_on_sqlite_costs_no_term(sqlite_url, tmp_path):
    cluster = Cluster(tmp_path, sqlite_url, ttl=1, effects=False).start()
    leader, term = cluster.leader()
    connection = sqlite3.connect(path_of(sqlite_url), isolation_level=None)
    connection.execute("CREATE TABLE mine (n)")
    connection.execute("BEGIN IMMEDIATE")
    connection.execute("INSERT INTO mine VALUES (1)")
    time.sleep(1.5)
    connection.execute("COMMIT")
    connection.close()
    assert leader.leads == term
    leader.kill()
    cluster.leader(after=term)
    cluster.verify(terms=2)


def test_a_leader_that_lapses_beside_a_users_long_transaction_is_seen_alive_afterwards(sqlite_url, tmp_path):
    """It cannot revive while another writes; when it has, its signs of life must be where the others look for them."""
    cluster = Cluster(tmp_path, sqlite_url, ttl=1, effects=False).start()
    leader, term = cluster.leader()
    connection = sqlite3.connect(path_of(sqlite_url), isolation_level=None)
    connection.execute("BEGIN IMMEDIATE")
    leader.freeze()
    time.sleep(1.0)
    leader.thaw()
    leader.until(event="lost", term=term)
    time.sleep(1.0)
    connection.execute("COMMIT")
    connection.close()
    cluster.leader(after=term)
    time.sleep(1.2)  # more than a ttl
    cluster.verify(terms=2)
    assert cluster.query("SELECT label, ended_by FROM tenure_node WHERE ended_by LIKE 'silent%'") == []


def test_a_hundred_candidates_survive_the_death_of_half(tmp_path):
    with Postgres(settings={"max_connections": "320"}) as server:
        hundred(Cluster(tmp_path, server.create_database(), ttl=5, effects=False, session_evidence=False))


def test_a_hundred_candidates_on_one_file_survive_the_death_of_half(sqlite_url, tmp_path):
    hundred(Cluster(tmp_path, sqlite_url, ttl=5, effects=False))


def hundred(cluster):
    cluster.start(4, nodes=25)
    leader, term = cluster.leader()
    for victim in [leader, cluster.others(leader)[0]]:
        victim.kill()
    _, term = cluster.leader(after=term)
    time.sleep(1)
    cluster.verify(terms=2)


def next_term(cluster, after, within=20.0):
    """The next term that anybody says it began, also if it is over already."""
    deadline = time.monotonic() + within
    while time.monotonic() < deadline:
        seen = [
            (e["term"], w) for w in cluster.workers for e in w.events if e["event"] == "leads" and e["term"] > after
        ]
        if seen:
            term, worker = min(seen, key=lambda item: item[0])
            return worker, term
        time.sleep(0.005)
    raise AssertionError(f"no term after {after}\n{cluster.stories()}")


def next_deed(cluster, after):
    """From the histories, as forked children say nothing: the term of the next effect, and the process behind it."""
    found = []

    def newer():
        entries = [
            entry for entry in belief.check(cluster.log).entries if entry.term > after and entry.kind == "effect"
        ]
        found.extend((entry.term, int(entry.node.rpartition(".")[2])) for entry in entries)
        return found

    cluster.eventually(newer)
    return found[-1]


def assert_work_ended_first(report):
    last = {}
    for entry in report.entries:
        if entry.kind == "acts":
            last[entry.term] = max(last.get(entry.term, 0.0), entry.before)
    assert last
    for term, acted in last.items():
        after = [s.begin for s in report.stretches if s.term > term]
        assert after
        assert min(after) > acted, f"term {term} still acted when its successor led"


def path_of(url):
    return Path(url.removeprefix("sqlite:///"))


def hide(url):
    """Make the database unreachable: every statement finds that its file is gone."""
    path = path_of(url)
    moved = path.with_name("elsewhere")
    path.rename(moved)
    return path, moved


def show(paths):
    path, moved = paths
    moved.rename(path)
