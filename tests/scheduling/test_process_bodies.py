"""Bodies in processes of their own: what they are told, what they cannot spoil, and who is killed."""

import asyncio
import os
import signal
import subprocess
import time
from pathlib import Path

import psycopg
import pytest

import bodies
from harness.processes import SUPPORT, Worker
from scheduling.test_engine import ended, eventually, scheduler
from tenure import Run, Scheduler
from tenure.scheduling import processes
from tenure.scheduling.processes import Child

SCRIPT = SUPPORT / "workers" / "process_bodies.py"


def jobs_of(*functions, **options):
    one = scheduler(**options)
    for function in functions:
        one.job(process=True)(function)
    return one


def logged(one: Scheduler, run: object) -> list[str]:
    """The log follows the ending."""
    return eventually(lambda: one.log(run.id))


def pid_in(path: Path) -> int:
    return int(eventually(lambda: path.exists() and path.read_text().strip()))


def locks_of(pid: int) -> list[str]:
    """The lock files that a process has open."""
    opened = [str(entry.readlink()) for entry in Path(f"/proc/{pid}/fd").iterdir()]
    return [Path(name).name for name in opened if ".lock" in name]


# Whose death they keep from being proved


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="needs /proc")
def test_a_body_holds_the_lock_of_the_identity_that_runs_it(sqlite_url):
    """A node that was declared dead comes back under another identity, with another lock. A child of before has the lock of the dead one."""
    one = jobs_of(bodies.pid_of, world=sqlite_url)
    with one:
        before, first = one.health().node, ended(one, one.run_now("pid_of"))
        assert locks_of(int(logged(one, first)[1])) == [f"{before}.lock"]
        session = one.store.session("test", 5.0)
        assert session.declare(before, None, "said the test")
        session.close()
        eventually(lambda: one.health().node != before and one.health().ok)
        second = ended(one, one.run_now("pid_of"))
        assert locks_of(int(logged(one, second)[1])) == [f"{one.health().node}.lock"]


# What a body leaves behind


@pytest.mark.parametrize("body", [bodies.starts_a_stranger_and_sleeps, bodies.starts_a_stranger_and_dies])
def test_what_a_body_starts_holds_up_neither_its_timeout_nor_its_death(body, tmp_path):
    one = scheduler(capacity=1)
    one.job(process=True, timeout=2, name="body")(body)
    one.job(name="next")(lambda: None)
    with one:
        run = one.run_now("body", kwargs={"pidfile": str(tmp_path / "pid")})
        said = ended(one, run, "failed").reason.splitlines()[-1]
        stranger = pid_in(tmp_path / "pid")
        try:
            os.kill(stranger, 0)  # it lives on, and holds nothing of ours
            ended(one, one.run_now("next"))
        finally:
            os.kill(stranger, signal.SIGKILL)
    assert said in {"timed out after 2 s", "its process ended with exit code 3"}


def test_what_a_body_starts_inherits_nothing_but_the_standard_streams(sqlite_url):
    one = jobs_of(bodies.lists_what_is_inherited, world=sqlite_url)
    with one:
        run = ended(one, one.run_now("lists_what_is_inherited"))
        listed = logged(one, run)
    ours = [name for name in listed if name.startswith(("pipe:", "socket:")) or ".lock" in name]
    streams = {str(Path(f"/proc/self/fd/{number}").readlink()) for number in (0, 1, 2)}
    assert len(ours) == 1 + sum(name in streams for name in ours), listed  # one is that of the listing


def test_threads_of_a_body_that_log_at_once_tear_nothing():
    one = jobs_of(bodies.shouts_in_threads, bodies.says, capacity=1)
    with one:
        run = ended(one, one.run_now("shouts_in_threads"))
        assert {line for line in logged(one, run) if not line.startswith("(")} == {"ä" * 2000}
        after = ended(one, one.run_now("says", kwargs={"line": "fine"}))
        assert logged(one, after) == ["fine"]


def test_a_late_thread_of_one_body_never_writes_into_the_log_of_another():
    one = jobs_of(bodies.leaves_a_thread, bodies.comes_after, capacity=1)
    with one:
        first = ended(one, one.run_now("leaves_a_thread"))
        second = ended(one, one.run_now("comes_after"))
        said = logged(one, second)
        assert (said[0], len(said)) == ("the late one has spoken", 2)
        assert one.log(first.id) == []


def test_a_child_that_said_something_unexpected_is_not_used_again():
    one = jobs_of(bodies.speaks_for_another, bodies.talks_nonsense, bodies.closes_everything, bodies.pid_of, capacity=1)
    with one:

        def pid():
            return logged(one, ended(one, one.run_now("pid_of")))[-1]

        assert pid() == pid()
        run = ended(one, one.run_now("speaks_for_another"))
        (used,) = logged(one, run)
        assert used != pid()
        before = pid()
        assert "cannot be read" in ended(one, one.run_now("talks_nonsense"), "failed").reason
        between = pid()
        assert "closed the pipe" in ended(one, one.run_now("closes_everything"), "failed").reason
        assert len({before, between, pid()}) == 3


def test_an_exception_that_cannot_be_printed_fails_its_run_alone():
    one = jobs_of(bodies.cannot_be_printed, bodies.says, capacity=1)
    with one:
        assert "Unprintable" in ended(one, one.run_now("cannot_be_printed"), "failed").reason
        ended(one, one.run_now("says", kwargs={"line": "fine"}))


# Who is killed


def test_no_body_is_killed_for_the_timeout_of_another(monkeypatch):
    """A timeout that falls on the end of its body: meanwhile the child would be at the next one."""
    kill = Child.kill

    def kill_late(child):
        time.sleep(0.5)
        kill(child)

    monkeypatch.setattr(Child, "kill", kill_late)
    one = scheduler(capacity=1)
    one.job(process=True, timeout=0.3, name="edge")(bodies.naps)
    one.job(process=True, name="innocent")(bodies.naps)
    with one:
        ended(one, one.run_now("innocent", kwargs={"seconds": 0}))  # so that there is a child
        one.run_now("edge", kwargs={"seconds": 0.4})
        ended(one, one.run_now("innocent", kwargs={"seconds": 0.6}))


def test_two_attempts_of_one_run_have_a_process_each():
    """The run of a node that was declared dead and came back: the old body may still be at work when the new one begins."""
    one = jobs_of(bodies.naps)
    with one:
        one.run_now("naps", kwargs={"seconds": 60})
        runner = one._service._engine._parts.executor
        (attempt,) = eventually(lambda: tuple(runner.in_hand.values()))
        mine = runner._processes
        eventually(lambda: mine._busy.get(attempt))
        twin = type(attempt)(
            attempt.claimed, "other", "other", function=attempt.function, run=attempt.run, at=attempt.queued_at
        )
        assert not mine.kill(twin)
        assert mine.kill(attempt)


def test_it_works_where_the_program_ignores_sigchld():
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    one = jobs_of(bodies.dies, bodies.says, bodies.exits_with_three, capacity=1)
    one.job(process=True, timeout=0.3)(bodies.sleeps)
    try:
        with one:
            for _ in range(2):
                assert ended(one, one.run_now("dies"), "failed").reason.startswith("its process ended")
                assert ended(one, one.run_now("sleeps"), "failed").reason.splitlines()[-1] == "timed out after 0.3 s"
                ended(one, one.run_now("says", kwargs={"line": "fine"}))
            run = ended(one, one.run_now("exits_with_three"))
            assert logged(one, run) == ["3"]
    finally:
        signal.signal(signal.SIGCHLD, before)


# Nodes as processes


def test_a_body_whose_node_is_frozen_learns_by_its_own_clock_that_its_run_is_lost(sqlite_url):
    with Worker(SCRIPT, sqlite_url, "a", "") as worker:
        worker.wait_event(event="started")
        run = Scheduler(sqlite_url).run_now("long", kwargs={"seconds": 30})
        child = worker.wait_event(event="begins")["pid"]
        worker.freeze()
        assert worker.wait_event(event="lost")["pid"] == child
        worker.thaw()  # nobody has taken the run away
        assert worker.wait_event(event="found")["pid"] == child
        assert Scheduler(sqlite_url).find_run(run.id).state == "running"


def test_a_body_whose_node_is_cut_off_is_told_and_killed_once_the_ledger_has_taken_its_run(proxy, database):
    through = database.replace(f":{psycopg.conninfo.conninfo_to_dict(database)['port']}/", f":{proxy.port}/")
    with Worker(SCRIPT, through, "a", "") as cut_off:
        cut_off.wait_event(event="started")
        Scheduler(database).run_now("long", kwargs={"seconds": 30})
        child = cut_off.wait_event(event="begins")["pid"]
        other = Worker(SCRIPT, database, "b", "").start()
        other.wait_event(event="started")
        proxy.hold()
        assert cut_off.wait_event(event="lost")["pid"] == child
        other.wait_event(event="begins", attempt=2)
        os.kill(child, 0)  # nobody has told its node yet
        proxy.heal()
        eventually(lambda: gone(child), within=20)


def gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def test_an_outage_that_both_nodes_survive_kills_no_body_and_calls_none_twice(own_postgres):
    url = own_postgres.create_database()
    with Worker(SCRIPT, url, "a", "") as a, Worker(SCRIPT, url, "b", "") as b:
        a.wait_event(event="started")
        b.wait_event(event="started")
        asked = Scheduler(url).run_now("long", kwargs={"seconds": 8})
        eventually(lambda: any('"begins"' in line for line in a.lines + b.lines))
        own_postgres.freeze()
        mine = a if any('"begins"' in line for line in a.lines) else b
        mine.wait_event(event="lost")
        time.sleep(1)
        own_postgres.thaw()
        mine.wait_event(event="found")
        mine.wait_event(event="ends")
        done = eventually(lambda: (run := Scheduler(url).find_run(asked.id)).state == "succeeded" and run)
        assert done.attempt == 1
        assert sum('"begins"' in line for line in a.lines + b.lines) == 1


def test_a_signal_to_the_whole_group_lets_a_body_in_a_process_end(sqlite_url):
    """As systemd does, and `timeout`."""
    command = [*Worker(SCRIPT, sqlite_url, "a", "").command]
    env = Worker(SCRIPT).env
    with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True, start_new_session=True) as group:
        try:
            assert "started" in group.stdout.readline()
            run = Scheduler(sqlite_url).run_now("long", kwargs={"seconds": 1.5})
            assert "begins" in group.stdout.readline()
            os.killpg(group.pid, signal.SIGTERM)
            assert "ends" in group.stdout.readline()
            assert "left" in group.stdout.readline()
            assert group.wait(10) == 0
        finally:
            if group.poll() is None:
                os.killpg(group.pid, signal.SIGKILL)
    assert Scheduler(sqlite_url).find_run(run.id).state == "succeeded"


@pytest.mark.parametrize("on_lost", ["fail", "retry"])
def test_a_program_that_ends_without_a_stop_has_interrupted_its_bodies(on_lost):
    one = scheduler()
    one.job(process=True, name="sleeps", on_lost=on_lost, retries=3)(bodies.naps)
    with one:
        run = one.run_now("sleeps", kwargs={"seconds": 60})
        eventually(lambda: [attempt.called for attempt in one._service._engine._parts.executor.running] == [True])
        processes._stop_all()  # as `atexit` does
        eventually(lambda: one.find_run(run.id).interruptions)
    found = one.find_run(run.id)
    assert (found.state, found.failures, found.losses) == ("lost" if on_lost == "fail" else "pending", 0, 0)
    assert (found.attempt, found.interruptions) == (1, 1), "no other attempt began where none can"


def looks_up(seconds: float, run: Run) -> None:
    end = time.monotonic() + seconds
    while not run.cancelled and time.monotonic() < end:
        time.sleep(0.005)
    run.check()  # AttemptLost: the lease has lapsed


@pytest.mark.parametrize("kind", ["coroutine", "process", "thread"])
def test_a_stop_interrupts_a_body_also_while_the_lease_has_lapsed(kind):
    """As in an outage that outlasts the lease, and ends before another node has taken the run."""
    one = scheduler()
    body = {"coroutine": asyncio.sleep, "process": bodies.naps, "thread": looks_up}[kind]
    one.job(process=kind == "process", name="sleeps")(body)
    with one:
        run = one.run_now("sleeps", kwargs={"delay" if kind == "coroutine" else "seconds": 60})
        (attempt,) = eventually(lambda: [each for each in one._service._engine._parts.executor.running if each.called])
        attempt.control._until = lambda: 0.0
        assert attempt.run.lost
        assert not one.stop(drain=0)
    found = one.find_run(run.id)
    assert (found.state, found.failures, found.interruptions) == ("pending", 0, 1)
