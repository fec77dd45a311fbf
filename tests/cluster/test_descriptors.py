"""Few descriptors: nodes of one process share what they watch, and one that has none left goes on."""

from contextlib import ExitStack
from pathlib import Path

from harness.processes import SUPPORT, Worker
from harness.scratch import eventually
from tenure import Election
from tenure.cluster.base_node import _NODES

STARVED = SUPPORT / "workers" / "starved.py"
CANDIDATES = 6


def pidfds() -> int:
    links = []
    for entry in Path("/proc/self/fd").iterdir():
        try:
            links.append(str(entry.readlink()))
        except OSError:
            continue  # that of the listing
    return sum("pidfd" in link for link in links)


def test_nodes_of_one_process_share_what_they_watch(url, monkeypatch, tmp_path):
    monkeypatch.setenv("TENURE_RUNTIME_DIR", str(tmp_path / "runtime"))
    before = pidfds()
    with ExitStack() as stack:
        mine = [
            Election(url, "x", label=f"n{number}", ttl=6, heartbeat_every=0.3, attempt_timeout=0.9)
            for number in range(CANDIDATES)
        ]
        for election in mine:
            stack.enter_context(election)
        nodes = [node for node in _NODES if any(node is election._seat for election in mine)]
        assert len(nodes) == CANDIDATES
        eventually(
            lambda: all(
                len(set().union(*node._parts.loop._detector._processes.values())) == CANDIDATES - 1 for node in nodes
            ),
            within=20,
            what="all know each other",
        )
        assert pidfds() - before == 1
    assert pidfds() == before


def test_a_leader_without_descriptors_keeps_beating(url, monkeypatch, tmp_path):
    runtime = str(tmp_path / "runtime")
    monkeypatch.setenv("TENURE_RUNTIME_DIR", runtime)
    with Worker(STARVED, url, env={"TENURE_RUNTIME_DIR": runtime}) as leader:
        leader.wait_line("starves", within=20)
        with Election(url, "x", ttl=3, heartbeat_every=0.3, attempt_timeout=0.9) as other:
            for _ in range(15):  # beats: half as long again as the ttl
                leader.wait_line("leads")
                assert not other.is_leader
            assert "does not lead" not in leader.lines
            leader.kill()
            assert other.wait_until_leading(20)
