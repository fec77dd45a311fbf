"""`tenure lead`: the command's whole group is dead before anybody else can lead."""

import itertools
import json
import os
import re
import signal
import sys
import time
from pathlib import Path

import psycopg
import pytest

from harness import scratch
from harness.processes import Worker
from tenure.cli import main
from tenure.cli.lead import Act, Timing, act
from tenure.errors import ConfigurationError
from tenure.util.signals import SAME

# Writes the time of every act into a file, for the command and for a child of it; deaf to SIGTERM if told so.
ACTOR = """
import json, os, signal, subprocess, sys, time
path, deaf, children = sys.argv[1], sys.argv[2] == "deaf", int(sys.argv[3])
if deaf:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
if children:
    subprocess.Popen([sys.executable, sys.argv[0], path, "deaf", "0"], close_fds=False)
file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
term = os.environ.get("TENURE_TERM")
while True:
    note = {"pid": os.getpid(), "pgid": os.getpgid(0), "at": time.clock_gettime(time.CLOCK_BOOTTIME), "term": term}
    os.write(file, json.dumps(note).encode() + b"\\n")
    time.sleep(0.005)
"""


def lead(url, name, *, command, options=()):
    return Worker("tenure", "lead", name, "--url", url, *options, "--", *command)


def actor(notes: Path, *, deaf: bool = False, children: int = 0) -> list[str]:
    script = notes.with_suffix(".py")
    script.write_text(ACTOR)
    return [sys.executable, str(script), str(notes), "deaf" if deaf else "hears", str(children)]


def acts(path: Path) -> list[dict[str, object]]:
    lines = path.read_text().split("\n") if path.exists() else []
    return [json.loads(line) for line in lines[:-1]]


def acting(path: Path, pids: int = 1, term: str | None = None) -> list[dict[str, object]]:
    """Wait until so many processes act, in this term if it is given."""

    def enough() -> bool:
        return len({note["pid"] for note in acts(path) if term in {None, note["term"]}}) >= pids

    scratch.eventually(enough, what=f"{pids} processes act")
    return acts(path)


def boottime() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)


# The rule


def test_the_command_is_told_before_trust_ends_and_killed_before_it_too():
    timing = Timing.of("10s", "3s")
    at = {left: act(100.0 - left, until=100.0, told_at=None, timing=timing) for left in (3.1, 2.9, 0.6, 0.4, -1.0)}
    assert at == {3.1: Act.RUN, 2.9: Act.TERM, 0.6: Act.TERM, 0.4: Act.KILL, -1.0: Act.KILL}


def test_once_told_a_late_heartbeat_takes_nothing_back():
    timing = Timing.of("10s", "3s")
    assert act(50.0, until=58.0, told_at=49.0, timing=timing) is Act.TERM
    assert act(52.1, until=60.0, told_at=49.0, timing=timing) is Act.KILL


@pytest.mark.parametrize("ttl", ["1s", "3s", "10s", "60s"])
def test_the_default_grace_survives_one_hung_heartbeat(ttl):
    timing = Timing.of(ttl)
    hung = 0.8 * timing.ttl - 0.2 * timing.ttl - 0.2 * timing.ttl  # trust, one interval, one attempt
    assert timing.margin < timing.grace < hung


def test_a_grace_that_does_not_fit_is_refused_with_the_arithmetic():
    with pytest.raises(
        ConfigurationError, match=r"grace: 7 s does not fit into a ttl of 10 s.* Write --grace 3s or less, or --ttl 23s"
    ):
        Timing.of("10s", "7s")
    with pytest.raises(ConfigurationError, match=r"Write --grace 3s or less\.$"):
        Timing.of("10s", "70s")
    assert Timing.of("24s", "7s").grace == 7


# What the command gets, and how it ends


def test_the_command_knows_its_term_and_its_exit_code_is_ours(url):
    show = "import os; print([os.environ[f'TENURE_{k}'] for k in ('ELECTION', 'TERM', 'NODE', 'SCHEMA')], 'TENURE_URL' in os.environ); exit(7)"
    with lead(url, "mail", command=[sys.executable, "-c", show]) as worker:
        assert worker.wait() == 7
        assert re.fullmatch(r"\['mail', '1', '[0-9a-f-]{36}', 'tenure'\] False", worker.lines[0])
    with lead(url, "mail", command=["sh", "-c", "kill -9 $$"]) as worker:
        assert worker.wait() == 128 + 9
        assert "leading 'mail' in term 2" in worker.errors[0]


def test_a_url_from_the_environment_reaches_the_command(sqlite_url):
    with Worker("tenure", "lead", "x", "--", "sh", "-c", "echo $TENURE_URL", env={"TENURE_URL": sqlite_url}) as worker:
        assert worker.wait() == 0
        assert worker.lines == [sqlite_url]


def test_a_command_that_cannot_run_costs_no_term(sqlite_url, tmp_path, capsys):
    plain = tmp_path / "notes.txt"
    plain.write_text("hello")
    assert main(["lead", "x", "--url", sqlite_url, "--", "no-such-command"]) == 127
    assert main(["lead", "x", "--url", sqlite_url, "--", str(plain)]) == 126
    assert "'no-such-command' was not found" in capsys.readouterr().err
    assert not list(tmp_path.glob("tenure.db*"))


def test_sigterm_stops_the_command_and_then_us(url, tmp_path):
    notes = tmp_path / "acts"
    with lead(url, "x", command=actor(notes, children=1), options=["--grace", "1s"]) as worker:
        [pgid] = {note["pgid"] for note in acting(notes, pids=2)}
        began = time.monotonic()
        assert worker.terminate() == -signal.SIGTERM  # ends as the signal would have: supervisors call that clean
        assert 0.9 < time.monotonic() - began < 4  # the grandchild is deaf: it takes the whole grace
        assert not group_exists(pgid)
    with lead(url, "x", options=["--try"], command=["true"]) as successor:  # and the term was released
        assert successor.wait() == 0


def test_a_second_signal_does_not_wait_for_the_grace(sqlite_url, tmp_path):
    notes = tmp_path / "acts"
    with lead(sqlite_url, "x", command=actor(notes, deaf=True), options=["--ttl", "30s"]) as worker:
        acting(notes)
        began = time.monotonic()
        os.kill(worker.pid, signal.SIGINT)
        scratch.eventually(lambda: any("to process group" in line for line in worker.errors), what="the command told")
        time.sleep(SAME)  # sooner would be the same signal, sent to the group too
        os.kill(worker.pid, signal.SIGINT)
        assert worker.wait() == -signal.SIGINT
        assert time.monotonic() - began < 4


def test_a_command_that_ends_well_on_sigterm_makes_us_end_well(sqlite_url):
    command = ["sh", "-c", "trap 'exit 0' TERM; echo ready; while :; do sleep 0.05; done"]
    with lead(sqlite_url, "x", command=command) as worker:
        worker.wait_line("ready")
        assert worker.terminate() == 0


def test_what_a_command_leaves_behind_is_stopped_before_the_term_is_given_back(sqlite_url):
    command = ["sh", "-c", "sleep 60 & echo $$; exit 5"]
    with lead(sqlite_url, "x", command=command) as worker:
        assert worker.wait() == 5
        assert not group_exists(int(worker.lines[0]))


def test_not_leading_in_time_is_exit_code_1(url, tmp_path):
    notes = tmp_path / "acts"
    with lead(url, "x", command=actor(notes), options=["--label", "first"]):
        acting(notes)
        for patience in (["--try"], ["--wait", "300ms"]):
            with lead(url, "x", command=["echo", "never"], options=patience) as second:
                assert second.wait() == 1
                assert re.search(r"not leading 'x'.*: first leads in term 1", second.errors[-1])
                assert not second.lines


# When leadership moves


def test_asked_to_resign_it_stops_the_command_and_stands_again(url, tmp_path, capsys):
    notes = tmp_path / "acts"
    with lead(url, "x", command=actor(notes), options=["--label", "first"]) as worker:
        acting(notes)
        assert main(["resign", "x", "--url", url, "--wait"]) == 1  # nobody else stands
        assert "first leads 'x' again, in term 2: no other node stands for it" in capsys.readouterr().out
        acting(notes, term="2")
        assert worker.terminate() == -signal.SIGTERM
        assert any("asked to resign" in line for line in worker.errors)
    assert not mixed_terms(notes)


def test_once_means_one_term(url, tmp_path):
    notes = tmp_path / "acts"
    with lead(url, "x", command=actor(notes), options=["--once"]) as worker:
        acting(notes)
        assert main(["resign", "x", "--url", url]) == 0
        assert worker.wait() == 1


def test_forever_runs_the_command_again_in_each_term(sqlite_url):
    with lead(sqlite_url, "x", command=["sh", "-c", "echo term $TENURE_TERM"], options=["--forever"]) as worker:
        worker.wait_line("term 1")
        worker.wait_line("term 2")
        worker.terminate()


def test_kill_9_of_lead_takes_the_command_along_and_only_then_somebody_takes_over(url, tmp_path):
    first, second = tmp_path / "first", tmp_path / "second"
    with lead(url, "x", command=actor(first, deaf=True, children=1)) as worker:
        pids = {note["pid"] for note in acting(first, pids=2)}
        with lead(url, "x", command=actor(second)) as successor:
            scratch.eventually(lambda: any("waiting to lead" in line for line in successor.errors), what="waiting")
            worker.kill()
            acting(second)
            assert not any(scratch.running(pid) for pid in pids)
            assert max(note["at"] for note in acts(first)) < min(note["at"] for note in acts(second))
            successor.terminate()


def test_the_command_ends_with_lead_also_without_the_guard(sqlite_url, tmp_path):
    notes = tmp_path / "acts"
    with lead(sqlite_url, "x", command=actor(notes, deaf=True)) as worker:
        [pid] = {note["pid"] for note in acting(notes)}
        [guard] = set(scratch.children(worker.pid)) - {pid}
        os.kill(guard, signal.SIGKILL)
        scratch.eventually(lambda: any("guard process was killed" in line for line in worker.errors), what="said")
        worker.kill()
        scratch.eventually(lambda: not scratch.running(pid), what="the command is gone")


def test_a_frozen_lead_cannot_leave_its_command_running(sqlite_url, tmp_path):
    first, second = tmp_path / "first", tmp_path / "second"
    with lead(sqlite_url, "x", command=actor(first, deaf=True, children=1), options=["--ttl", "2s"]) as worker:
        [pgid] = {note["pgid"] for note in acting(first, pids=2)}
        with lead(sqlite_url, "x", command=actor(second), options=["--ttl", "2s"]) as successor:
            scratch.eventually(lambda: any("waiting to lead" in line for line in successor.errors), what="waiting")
            frozen_at = boottime()
            worker.freeze()
            acting(second)
            assert max(note["at"] for note in acts(first)) < frozen_at + 0.8 * 2  # trust began before the freeze
            assert max(note["at"] for note in acts(first)) < min(note["at"] for note in acts(second))
            worker.thaw()
            scratch.eventually(lambda: any("is over" in line for line in worker.errors), what="the thawed one sees it")
            assert not group_exists(pgid)
            successor.terminate()


def test_an_unreachable_server_ends_the_command_before_it_ends_trust(own_postgres, tmp_path):
    """The server freezes: nothing is refused, nothing answers. The deaf group must be dead when trust is over."""
    url, notes = own_postgres.create_database(), tmp_path / "acts"
    options = ["--ttl", "5s", "--grace", "1500ms"]
    with lead(url, "x", command=actor(notes, deaf=True, children=1), options=options) as worker:
        [pgid] = {note["pgid"] for note in acting(notes, pids=2)}
        more_beats(url)
        own_postgres.freeze()
        frozen_at = boottime()
        scratch.eventually(lambda: any("SIGTERM to process group" in line for line in worker.errors), what="told")
        told_at = boottime()
        scratch.eventually(lambda: not group_exists(pgid), what="the group is dead")
        last = max(note["at"] for note in acts(notes))
        assert told_at < last  # it was deaf and went on
        assert last < frozen_at + 0.8 * 5  # no heartbeat that was acknowledged was sent later than the freeze
        [told] = [line for line in worker.errors if "SIGTERM to process group" in line]
        assert "no heartbeat was acknowledged and trust ends in 1.5 s" in told
        own_postgres.thaw()
        acting(notes, pids=2, term="2")  # and it leads again by itself
        worker.terminate()
    assert not mixed_terms(notes)


def test_a_short_hiccup_of_the_server_stops_nothing(own_postgres, tmp_path):
    url, notes = own_postgres.create_database(), tmp_path / "acts"
    with lead(url, "x", command=actor(notes)) as worker:
        acting(notes)
        own_postgres.freeze()
        time.sleep(1.5)
        own_postgres.thaw()
        own_postgres.terminate_backends("tenure:%")
        more_beats(url)
        assert not any("SIGTERM" in line for line in worker.errors)
        worker.terminate()


def more_beats(url: str, count: int = 2) -> None:
    """The only node beats so many times more."""

    def beats() -> int:
        with psycopg.connect(url) as connection:
            [(seq,)] = connection.execute("SELECT seq FROM tenure.node WHERE state = 'alive'").fetchall()
        return int(seq)

    before = beats()
    scratch.eventually(lambda: beats() >= before + count, what=f"{count} heartbeats")


def group_exists(pgid) -> bool:
    """Live members alone: a zombie does nothing."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if int(fields[2]) == pgid and fields[0] != "Z":
                return True
    return False


def mixed_terms(path: Path) -> bool:
    """Whether an older term acted after a newer one had begun."""
    spans = {}
    for note in acts(path):
        begin, end = spans.get(note["term"], (note["at"], note["at"]))
        spans[note["term"]] = (min(begin, note["at"]), max(end, note["at"]))
    ordered = [spans[term] for term in sorted(spans, key=int)]
    return any(older[1] >= newer[0] for older, newer in itertools.pairwise(ordered))
