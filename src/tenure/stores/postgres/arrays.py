"""Arrays in PostgreSQL's binary format, made in one pass. The driver checks each value and takes twice as long."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from itertools import chain, repeat

from psycopg import BaseConnection
from psycopg.adapt import Buffer, Dumper
from psycopg.pq import Format

from tenure.stores.row_checks import storable

BIGINT, FLOAT8, TEXT = 20, 701, 25
_HEAD = struct.Struct("!iiIii")
_NULL = b"\xff\xff\xff\xff"


class Longs(bytes):
    """bigint[]"""

    __slots__ = ()


class Doubles(bytes):
    """double precision[]"""

    __slots__ = ()


class Texts(bytes):
    """text[]"""

    __slots__ = ()


def longs(values: Sequence[int]) -> Longs:
    """Values without NULLs."""
    packed = struct.pack("!" + "iq" * len(values), *chain.from_iterable(zip(repeat(8), values)))
    return Longs(_head(BIGINT, len(values)) + packed)


def doubles(values: Sequence[float | None]) -> Doubles:
    """None is NULL."""
    if None in values:
        return Doubles(_joined(FLOAT8, [None if value is None else struct.pack("!d", value) for value in values]))
    packed = struct.pack("!" + "id" * len(values), *chain.from_iterable(zip(repeat(8), values)))
    return Doubles(_head(FLOAT8, len(values)) + packed)


def texts(values: Sequence[str | None]) -> Texts:
    """None is NULL. Characters that PostgreSQL's text cannot hold are escaped."""
    return Texts(_joined(TEXT, [None if value is None else storable(value).encode() for value in values]))


def register(connection: BaseConnection[object]) -> None:
    """Register these arrays with a connection."""
    for kind, dumper in ((Longs, _LongsDumper), (Doubles, _DoublesDumper), (Texts, _TextsDumper)):
        connection.adapters.register_dumper(kind, dumper)


def _head(oid: int, length: int, *, nulls: bool = False) -> bytes:
    return _HEAD.pack(1, nulls, oid, length, 1)


def _joined(oid: int, items: Sequence[bytes | None]) -> bytes:
    size = struct.Struct("!i").pack
    body = b"".join([_NULL if item is None else size(len(item)) + item for item in items])
    return _head(oid, len(items), nulls=None in items) + body


class _AsIs(Dumper):
    format = Format.BINARY

    def dump(self, obj: Buffer) -> Buffer:
        return obj


class _LongsDumper(_AsIs):
    oid = 1016


class _DoublesDumper(_AsIs):
    oid = 1022


class _TextsDumper(_AsIs):
    oid = 1009
