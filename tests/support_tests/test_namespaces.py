"""Disks that fill up and lines that lose packets, in a child with namespaces of its own."""

import socket
from pathlib import Path

import pytest

from harness import namespaces

pytestmark = pytest.mark.skipif(not namespaces.available(), reason="this kernel gives ordinary users no namespaces")
SENT = 200


def test_a_small_disk_is_full_has_room_again_and_is_gone_with_the_child():
    def play():
        disk = namespaces.SmallDisk(1)
        disk.fill()
        with pytest.raises(OSError, match="No space left"):
            (disk.folder / "more").write_bytes(b"x" * 8192)
        disk.empty()
        (disk.folder / "more").write_bytes(b"x" * 8192)
        return disk.folder

    folder = namespaces.elsewhere(play)
    assert not (folder / "more").exists()


def test_a_line_loses_one_way_both_ways_and_now_and_then():
    def play():
        with namespaces.Network(2) as network:
            line, seen = network.lines[1], {}
            for name, breaks in {
                "whole": lambda: None,
                "requests": lambda: line.lose("ingress"),
                "answers": lambda: line.lose("egress"),
                "some": lambda: line.lose("ingress", "egress", share=8),
                "healed": lambda: None,
                "down": line.down,
            }.items():
                breaks()
                seen[name] = arrivals(line)
                line.heal()
        return seen

    seen = namespaces.elsewhere(play)
    some = seen.pop("some")
    assert seen == {
        "whole": (SENT, SENT),
        "requests": (0, SENT),
        "answers": (SENT, 0),
        "healed": (SENT, SENT),
        "down": (0, 0),
    }
    assert all(SENT / 2 < count < SENT for count in some)


def arrivals(line):
    """Of so many packets: how many came here, and how many there."""
    with socket.socket(type=socket.SOCK_DGRAM) as here:
        here.bind((line.here, 0))
        with line.far_end():
            there = socket.socket(type=socket.SOCK_DGRAM)
        with there:
            there.bind((line.there, 0))
            return sent(there, here), sent(here, there)


def sent(source, sink):
    sink.settimeout(0.2)
    count = 0
    for number in range(SENT):
        try:
            source.sendto(str(number).encode(), sink.getsockname())
            sink.recv(16)
            count += 1
        except OSError:
            sink.settimeout(0.001)
    return count


def test_what_broke_in_the_child_is_raised_here():
    def play():
        raise ValueError("broke there")

    before = Path("/proc/self/ns/net").readlink()
    with pytest.raises(AssertionError, match="broke there"):
        namespaces.elsewhere(play)
    assert Path("/proc/self/ns/net").readlink() == before
