"""Recognises file systems that other machines may write too. SQLite's locks, and ours, mean nothing there."""

from __future__ import annotations

import ctypes
import sys
from pathlib import Path

# The type numbers of statfs(2), from linux/magic.h and the drivers themselves.
SHARED = {
    0x6969: "NFS",
    0x517B: "SMB",
    0xFF534D42: "CIFS",
    0xFE534D42: "SMB2",
    0x65735546: "FUSE or virtiofs",
    0x01021997: "9p",
    0x00C36400: "Ceph",
    0x0BD00BD0: "Lustre",
    0x47504653: "GPFS",
    0x5346414F: "AFS",
    0x73757245: "Coda",
    0x01161970: "GFS2",
    0x7461636F: "OCFS2",
    0x786F4256: "a VirtualBox shared folder",
    0xBACBACBC: "a VMware shared folder",
}


def shared(path: Path) -> str | None:
    """The name of the shared or network file system that a path lies on; None if it is local or unknown."""
    number = type_number(path)
    return None if number is None else SHARED.get(number)


def type_number(path: Path) -> int | None:
    """The type of the file system, from statfs(2); None on platforms without that call."""
    if not sys.platform.startswith("linux"):
        return None
    buffer = ctypes.create_string_buffer(256)  # struct statfs is 120 bytes and begins with the type, a long
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.statfs(bytes(path), buffer) != 0:
        return None
    return ctypes.c_ulong.from_buffer(buffer).value & 0xFFFFFFFF
