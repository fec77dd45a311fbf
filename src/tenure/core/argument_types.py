"""Which values a parameter takes, by its annotation.

Only plain annotations decide: the types that arguments are stored with, `None`, literals, and unions and collections of
these. Any other annotation takes every value. The rule is that of type checkers: a bool is no int, an int is a float,
and a datetime is a date.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Annotated, Any, Literal, NamedTuple, NewType, Union, get_args, get_origin
from uuid import UUID

from tenure.util.plurals import a_noun


class Misfit(NamedTuple):
    """A value that a parameter does not take."""

    place: str
    """Which one: `customer_ids[1]`."""
    value: object
    takes: str
    """The annotation of that place: `int`."""

    @property
    def instead(self) -> str:
        """What to write."""
        convert = _CONVERSIONS.get(self.takes)
        try:
            written = convert and convert(self.value)
        except (ValueError, TypeError, ArithmeticError):
            written = None
        if not written:
            return f"Write {_a(self.takes)}."
        return f"Write {self.place}={written}." if self.place.isidentifier() else f"Write {written}."


class ValueType(NamedTuple):
    """What a plain annotation allows."""

    text: str
    """The annotation, as people write it."""
    misfit: Callable[[object, str], Misfit | None]
    """Looks at a value and its place: what does not fit, or None."""


def value_type(annotation: object) -> ValueType | None:
    """The values that an annotation allows; None if it is not plain, and allows all."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return value_type(arguments[0])
    if isinstance(annotation, NewType):
        return value_type(annotation.__supertype__)
    if annotation is None or annotation is types.NoneType:
        return _tested("None", lambda value: value is None)
    if origin in (Union, types.UnionType):
        return _union([value_type(one) for one in arguments])
    if origin is Literal:
        return _literal(arguments)
    if isinstance(annotation, type) and annotation in _TESTS:
        return _tested(annotation.__name__, _TESTS[annotation])
    if isinstance(origin, type) and origin in _COLLECTIONS:
        return _collection(origin, arguments)
    return None


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


_COLLECTIONS = (list, set, frozenset, tuple, dict)
_TESTS: dict[type, Callable[[object], bool]] = {
    int: lambda value: isinstance(value, int) and not isinstance(value, bool),
    float: _is_number,
    **{
        one: lambda value, one=one: isinstance(value, one)  # type: ignore[misc]
        for one in (bool, str, bytes, datetime, date, time, timedelta, UUID, Decimal, *_COLLECTIONS)
    },
}


def _tested(text: str, fits: Callable[[object], bool]) -> ValueType:
    return ValueType(text, lambda value, place: None if fits(value) else Misfit(place, value, text))


def _union(parts: Sequence[ValueType | None]) -> ValueType | None:
    plain = [part for part in parts if part is not None]
    if len(plain) < len(parts):
        return None
    text = " | ".join(part.text for part in plain)

    def misfit(value: object, place: str) -> Misfit | None:
        found = [part.misfit(value, place) for part in plain]
        if None in found:
            return None
        inside = [one for one in found if one is not None and one.place != place]
        return inside[0] if len(inside) == 1 else Misfit(place, value, text)

    return ValueType(text, misfit)


def _literal(allowed: tuple[Any, ...]) -> ValueType | None:
    if not all(type(one) in (int, bool, str, bytes, types.NoneType) for one in allowed):
        return None  # of an enum, for example
    pairs = {(type(one), one) for one in allowed}
    fits: Callable[[object], bool] = lambda value: any((type(value), value) == pair for pair in pairs)  # noqa: E731
    return _tested(f"Literal[{', '.join(map(repr, allowed))}]", fits)


def _collection(origin: type, arguments: tuple[Any, ...]) -> ValueType:
    """A collection, and its members as far as their annotation is plain."""
    outer = _tested(origin.__name__, _TESTS[origin])
    if not arguments:
        return outer
    endless = origin is not tuple or (len(arguments) == 2 and arguments[1] is ...)  # noqa: PLR2004 - tuple[int, ...]
    members = [value_type(one) for one in arguments if one is not ...]
    names = ["…" if one is None else one.text for one in members]
    if origin is tuple and endless:
        names.append("...")
    text = f"{origin.__name__}[{', '.join(names)}]"

    def misfit(value: Any, place: str) -> Misfit | None:
        if outer.misfit(value, place) is not None:
            return Misfit(place, value, text)
        if not endless:
            if len(value) != len(members):
                return Misfit(place, value, text)
            looked = [(one, inner, f"{place}[{i}]") for i, (one, inner) in enumerate(zip(value, members, strict=True))]
        elif origin is dict:
            looked = [(key, members[0], f"{place}, a key") for key in value]
            looked += [(one, members[1], f"{place}[{key!r:.40}]") for key, one in value.items()]
        elif origin in (set, frozenset):
            looked = [(one, members[0], f"{place}, a member") for one in value]
        else:
            looked = [(one, members[0], f"{place}[{i}]") for i, one in enumerate(value)]
        for one, inner, where in looked:
            if inner is not None and (found := inner.misfit(one, where)) is not None:
                return found
        return None

    return ValueType(text, misfit)


def _quoted(kind: type, read: Callable[[str], object]) -> Callable[[Any], str | None]:
    """`UUID('…')` for a text that can be read as one."""

    def written(value: Any) -> str | None:
        if not isinstance(value, str):
            return None
        read(value)
        return f"{kind.__name__}{'' if kind is UUID else '.fromisoformat'}({value!r})"

    return written


_CONVERSIONS: dict[str, Callable[[Any], str | None]] = {
    "int": lambda value: (
        repr(int(value)) if isinstance(value, str | float | bool) and int(value) == float(value) else None
    ),
    "float": lambda value: repr(float(value)) if isinstance(value, str) else None,
    "str": lambda value: repr(str(value)) if type(value) in (int, float, Decimal, UUID) else None,
    "Decimal": lambda value: (
        f"Decimal({str(value)!r})" if type(value) in (int, float, str) and Decimal(str(value)).is_finite() else None
    ),
    "UUID": _quoted(UUID, UUID),
    "datetime": _quoted(datetime, datetime.fromisoformat),
    "date": _quoted(date, date.fromisoformat),
    "time": _quoted(time, time.fromisoformat),
    "timedelta": lambda value: f"timedelta(seconds={value})" if _is_number(value) else None,
}
"""What to write instead of a value that means the same in another type."""


def _a(text: str) -> str:
    """'an int', or the annotation as it is."""
    if text.startswith("Literal["):
        return " or ".join(text[len("Literal[") : -1].split(", "))
    return a_noun(text) if text.isidentifier() and text != "None" else text
