"""The arguments of jobs as text: JSON, and tags for the types that JSON lacks.

    {"customer": 7, "since": {"$tenure": ["date", "2026-11-16"]}}

A body receives exactly what was written, type by type; anything else is refused when the job is defined. Equal
arguments give equal texts in every process, because stores compare texts: keys and the members of sets are sorted.
Plain JSON stays as it is.

No dict of a user can be taken for a tag: a dict with the key `$tenure` travels as a tag itself. A tag that this library
does not know, because a newer one wrote it, is never guessed: the run fails and says why.
"""

from __future__ import annotations

import dataclasses
import json
import math
from base64 import b64decode, b64encode
from collections.abc import Mapping
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum
from typing import Any, TypeVar
from uuid import UUID
from zoneinfo import ZoneInfo

from tenure.errors import ConfigurationError, UnreadableArguments
from tenure.triggers.zones import zone_key
from tenure.util.plurals import a_type

_Clock = TypeVar("_Clock", datetime, time)

MAX_ARGUMENTS = 64 * 1024
"""The longest text, in bytes."""
MAX_RESULT = 8 * 1024
"""The longest text of what a body returned, in bytes."""
TAG = "$tenure"

_MAX_DEPTH = 100
_MAX_BITS = 10_000
"""The most bits of an integer: Python itself refuses to read numbers of more than 4,300 digits."""
_TYPES = (
    bool, int, float, str, list, dict, tuple, set, frozenset, bytes, datetime, date, time, timedelta, UUID, Decimal,
)  # fmt: skip


def encode(kwargs: Mapping[str, object]) -> str:
    """The text of these arguments. Refuses a value that cannot be stored, with its place."""
    if not isinstance(kwargs, Mapping):
        raise ConfigurationError(f"kwargs: {kwargs!r} is {a_type(kwargs)}. Write kwargs={{'customer_id': 7}}.")
    text = _text(_written(dict(kwargs), "kwargs", 0))
    if (size := len(text.encode())) > MAX_ARGUMENTS:
        raise ConfigurationError(
            f"kwargs: {size:,} bytes as JSON, at most {MAX_ARGUMENTS:,} are allowed. "
            "Keep the data in a table and give its key."
        )
    return text


def encode_result(value: object) -> str:
    """The text of what a body returned. Raises ConfigurationError, with a reason that fits behind 'it'.

    Looks at no more of the value than could be kept, and never prints it: it may be anything.
    """
    _measured(value, MAX_RESULT, 0)
    text = _text(_written(value, "result", 0))
    if (size := len(text.encode())) > MAX_RESULT:
        raise ConfigurationError(f"has {size:,} bytes as JSON, and at most {MAX_RESULT:,} are kept")
    return text


def _measured(value: object, left: int, depth: int) -> int:
    """How many of these bytes are left, at the most, once the value is written."""
    if value is not None and type(value) not in _TYPES and not isinstance(value, UUID):
        raise ConfigurationError(f"contains a {type(value).__qualname__}, which is not JSON")
    if depth > _MAX_DEPTH:
        raise ConfigurationError("is nested too deep, or contains itself")
    left -= len(value) if isinstance(value, str | bytes | list | dict | tuple | set | frozenset) else 1
    if left < 0:
        raise ConfigurationError(f"has more than {MAX_RESULT:,} bytes as JSON")
    if isinstance(value, dict):
        for key, item in value.items():
            left = _measured(item, _measured(key, left, depth + 1), depth + 1)
    elif isinstance(value, list | tuple | set | frozenset):
        for item in value:
            left = _measured(item, left, depth + 1)
    return left


def decode_result(text: str) -> Any:
    """What a body returned; None if it cannot be read."""
    try:
        return json.loads(text, object_hook=_read, parse_constant=_refuse_constant)
    except (ValueError, TypeError, ArithmeticError, RecursionError):  # hostile rows too
        return None


def decode(text: str) -> dict[str, Any]:
    """The arguments in a text. Raises `UnreadableArguments`, which tells no value: it becomes the reason of a run, and
    readers of reasons need not be allowed to see arguments."""
    if text == "{}":
        return {}
    try:
        found = json.loads(text, object_hook=_read, parse_constant=_refuse_constant)
    except (ValueError, TypeError, ArithmeticError, RecursionError) as error:  # hostile rows too
        said = str(error) if isinstance(error, json.JSONDecodeError | _NotOurs) else type(error).__name__
        raise UnreadableArguments(f"the arguments are not JSON as tenure writes it ({said})") from None
    if not isinstance(found, dict):
        raise UnreadableArguments(f"the arguments are not a JSON object, but {a_type(found)}")
    return found


class _NotOurs(ValueError):
    """JSON that tenure does not write. Its message tells no value."""


def differing(one: str, other: str) -> str:
    """How two texts of arguments differ, by the names of the arguments: 'password, region changed'. It tells no value,
    because those who may see what a job is need not be allowed to see its arguments."""
    try:
        mine, theirs = json.loads(one), json.loads(other)
        names = sorted(name for name in {**mine, **theirs} if _given(mine, name) != _given(theirs, name))
    except (ValueError, TypeError, RecursionError):  # hostile rows
        return "changed, and cannot be read"
    return f"{', '.join(names):.200} changed" if names else "written differently"


def _given(arguments: dict[str, object], name: str) -> str:
    """An argument as text: True is not 1, and 1 is not 1.0."""
    return json.dumps(arguments[name], sort_keys=True) if name in arguments else ""


def shown(text: str) -> dict[str, Any]:
    """The arguments for display; none if they cannot be read, in which case no body is called with them."""
    try:
        return decode(text)
    except UnreadableArguments:
        return {}


def plain(value: object) -> Any:
    """The value as plain JSON, for readers and other programs. It cannot be read back."""
    match value:
        case dict():
            return {key: plain(item) for key, item in value.items()}
        case list() | tuple():
            return [plain(item) for item in value]
        case set() | frozenset():
            return [plain(item) for item in sorted(value, key=lambda item: _text(_written(item, "", 0)))]
        case datetime() | date() | time():
            return value.isoformat()
        case timedelta():
            return value.total_seconds()
        case bytes():
            return b64encode(value).decode()
        case UUID() | Decimal():
            return str(value)
        case _:
            return value


def _text(written: object) -> str:
    return json.dumps(written, separators=(",", ":"), ensure_ascii=False, sort_keys=True)


def _written(value: object, path: str, depth: int) -> object:
    """The value as JSON and tags."""
    if depth > _MAX_DEPTH:
        raise ConfigurationError(f"{path[:60]}… is nested too deep, or contains itself.")
    if value is not None and type(value) not in _TYPES and not isinstance(value, UUID):  # asyncpg has one of its own
        raise _refused(value, path)
    match value:
        case str():
            return _checked(value, path)
        case int() if value.bit_length() > _MAX_BITS:
            raise ConfigurationError(f"{path}: a number of {value.bit_length():,} bits. Write a text: hex(value).")
        case float() if not math.isfinite(value):
            raise ConfigurationError(f"{path}: {value!r} is not a number that can be stored. Write None, or a text.")
        case Decimal() if not value.is_finite():
            raise ConfigurationError(f"{path}: {value!r} is not a number that can be stored. Write None, or a text.")
        case list():
            return _listed(value, path, depth)
        case dict():
            pairs = {_key(key, path): _written(item, f"{path}[{key!r}]", depth + 1) for key, item in value.items()}
            return pairs if TAG not in pairs else {TAG: ["dict", sorted(map(list, pairs.items()))]}
        case tuple():
            return {TAG: ["tuple", _listed(value, path, depth)]}
        case set() | frozenset():
            members = [_written(item, f"{path}, a member", depth + 1) for item in value]
            return {TAG: [type(value).__name__, sorted(members, key=_text)]}
        case datetime() | time():
            return {TAG: [type(value).__name__, *_clock(value, path)]}
        case date():
            return {TAG: ["date", value.isoformat()]}
        case timedelta():
            return {TAG: ["timedelta", value.days, value.seconds, value.microseconds]}
        case bytes():
            return {TAG: ["bytes", b64encode(value).decode()]}
        case UUID():
            return {TAG: ["UUID", str(value)]}
        case Decimal():
            return {TAG: ["Decimal", str(value)]}
        case _:
            return value


def _listed(values: list[Any] | tuple[Any, ...], path: str, depth: int) -> list[object]:
    return [_written(item, f"{path}[{i}]", depth + 1) for i, item in enumerate(values)]


def _key(key: object, path: str) -> str:
    if type(key) is not str:
        raise ConfigurationError(f"{path}: the key {key!r} is {a_type(key)}. Keys must be text: write {str(key)!r}.")
    return _checked(key, f"{path}, a key")


def _checked(text: str, path: str) -> str:
    if any("\ud800" <= c <= "\udfff" for c in text):
        raise ConfigurationError(f"{path}: {text!r} is not valid text (it has half a character).")
    return text


def _clock(value: datetime | time, path: str) -> list[object]:
    """The date and time as text, with a fixed offset; the name of the zone; and `fold`. Only as much as is needed."""
    match value.tzinfo:
        case None | timezone():
            shown, name = value.isoformat(), None
        case ZoneInfo() as zone if zone.key:
            shown, name = value.replace(tzinfo=None).isoformat(), zone_key(zone, path)
        case other:
            raise ConfigurationError(
                f"{path}: {value!r:.120} has a zone of the type {type(other).__module__}.{type(other).__qualname__}, "
                "which cannot be stored. Write the time with zoneinfo.ZoneInfo('Europe/Berlin'), or in datetime.UTC."
            )
    if value.fold:
        return [shown, name, value.fold]
    return [shown] if name is None else [shown, name]


def _refused(value: object, path: str) -> ConfigurationError:
    """The error for a type that cannot be stored, or for a subclass: the body would receive another type."""
    kind, base = type(value), next((one for one in _TYPES if isinstance(value, one)), None)
    match value:
        case Enum():
            instead = "value.value"
        case _ if hasattr(value, "__fspath__"):
            instead = "str(value)"
        case bytearray() | memoryview():
            instead = "bytes(value)"
        case tuple() if hasattr(value, "_asdict"):
            instead = "tuple(value), or value._asdict()"
        case str():
            instead = "''.join(value)"
        case datetime() | date() | time() | timedelta():
            instead = f"a plain {base.__name__}" if base else ""
        case _ if base is not None:
            instead = f"{base.__name__}(value)"
        case _ if dataclasses.is_dataclass(value) and not isinstance(value, type):
            instead = "dataclasses.asdict(value)"
        case _:
            instead = "text, numbers, lists and dicts, or the key of a row"
    loss = "cannot be stored" if base is None else f"would come back as a plain {base.__name__}"
    return ConfigurationError(
        f"{path}: {value!r:.80} is of the type {kind.__qualname__}, which {loss}. Write {instead}."
    )


def _read(found: dict[str, Any]) -> Any:
    """The value of a JSON object: itself, or that of a tag. Its parts have been read before."""
    if TAG not in found:
        return found
    match found[TAG]:
        case _ if len(found) > 1:
            raise _NotOurs(f"{TAG} stands beside other keys")
        case ["dict", list(pairs)]:
            return dict(pairs)
        case ["tuple", list(members)]:
            return tuple(members)
        case ["set", list(members)]:
            return set(members)
        case ["frozenset", list(members)]:
            return frozenset(members)
        case ["datetime", str(text), *rest]:
            return _placed(datetime.fromisoformat(text), *rest)
        case ["time", str(text), *rest]:
            return _placed(time.fromisoformat(text), *rest)
        case ["date", str(text)]:
            return date.fromisoformat(text)
        case ["timedelta", int(days), int(seconds), int(microseconds)]:
            return timedelta(days, seconds, microseconds)
        case ["bytes", str(text)]:
            return b64decode(text, validate=True)
        case ["UUID", str(text)]:
            return UUID(text)
        case ["Decimal", str(text)] if (number := Decimal(text)).is_finite():
            return number
        case [str(kind), *_]:
            raise _NotOurs(f"this version of tenure cannot read the type {kind!r:.80}")
        case tag:
            raise _NotOurs(f"this version of tenure cannot read a tag that is {a_type(tag)}")


def _placed(value: _Clock, name: str | None = None, fold: int = 0) -> _Clock:
    return value.replace(tzinfo=value.tzinfo if name is None else ZoneInfo(zone_key(name)), fold=fold)


def _refuse_constant(word: str) -> Any:
    raise _NotOurs(f"{word} is not JSON")
