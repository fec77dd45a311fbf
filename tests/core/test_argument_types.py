"""What a parameter takes by its annotation, and what is left alone."""

import decimal
import enum
import re
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Annotated, Any, List, Literal, NewType, Optional, TypeVar  # noqa: UP035 - people write it
from uuid import UUID

import pytest

from tenure.core.argument_types import value_type
from tenure.errors import ConfigurationError
from tenure.jobs.functions import bind, describe

SOME = UUID("12345678123456781234567812345678")
NOON = datetime(2026, 11, 19, 12, tzinfo=UTC)
CustomerId = NewType("CustomerId", int)
T = TypeVar("T")


class Colour(enum.Enum):
    RED = "red"


@pytest.mark.parametrize(
    ("annotation", "fitting", "others"),
    [
        (int, [7, -1, 10**30], [True, "7", 7.0, None, [7]]),
        (float, [0.5, 7], [True, "0.5", None, Decimal(1)]),
        (bool, [True, False], [1, 0, "yes", None]),
        (str, ["", "abc"], [7, b"abc", None, ["a"]]),
        (bytes, [b"abc"], ["abc"]),
        (datetime, [NOON], [date(2026, 11, 19), "2026-11-19T12:00Z", 7]),
        (date, [date(2026, 11, 19), NOON], ["2026-11-19"]),
        (time, [time(12)], ["12:00"]),
        (timedelta, [timedelta(1)], [86400, "1d"]),
        (UUID, [SOME], [str(SOME), 7]),
        (Decimal, [Decimal("1.5")], [1.5, 1, "1.5"]),
        (None, [None], [0, False, ""]),
        (Optional[int], [7, None], ["7", True]),  # noqa: UP045 - people write it
        (int | str | None, [7, "7", None], [7.5, True, [7]]),
        (Literal["fast", "slow", 3], ["fast", 3], ["Fast", 3.0, None]),
        (Literal[1], [1], [True, 1.0]),
        (list[int], [[], [1, 2]], [[1, "2"], (1, 2), "12", None, [True]]),
        (list[list[int]], [[[1], []]], [[[1], ["2"]], [1]]),
        (list[int] | None, [[1], None], [["1"], 1]),
        (list, [[1, "a", None]], [(1,), {1}]),
        (List[int], [[1]], [["1"]]),  # noqa: UP006 - people write it
        (dict[str, int], [{}, {"a": 1}], [{"a": "1"}, {1: 1}, []]),
        (tuple[int, str], [(1, "a")], [(1,), (1, 2), [1, "a"]]),
        (tuple[int, ...], [(), (1, 2)], [(1, "2"), [1]]),
        (set[str], [{"a"}], [{1}, ["a"]]),
        (frozenset[str], [frozenset("a")], [{"a"}]),
        (Annotated[int, "positive"], [7], ["7"]),
        (CustomerId, [7], ["7"]),
        (list[Colour], [[], [7]], ["red", 7]),
    ],
    ids=str,
)
def test_a_plain_annotation_takes_what_a_type_checker_would_take(annotation, fitting, others):
    takes = value_type(annotation)
    assert takes is not None
    assert [value for value in fitting if takes.misfit(value, "x")] == []
    assert [value for value in others if not takes.misfit(value, "x")] == []


@pytest.mark.parametrize(
    "annotation",
    [Any, object, Colour, Literal[Colour.RED], decimal.Context, int | Colour, T, complex, type[int], "int", ..., []],
    ids=str,
)
def test_any_other_annotation_is_left_alone(annotation):
    assert value_type(annotation) is None


def of_plain(  # noqa: PLR0917 - one of each
    customer_id: int = 0,
    ids: list[int] | None = None,
    price: Decimal = Decimal(0),
    at: datetime = NOON,
    key: UUID = SOME,
    speed: Literal["fast", "slow"] = "fast",
    share: float = 0.5,
    rest: timedelta = timedelta(0),
    implied: int = None,  # noqa: RUF013 - people write it
    **more: int,
): ...


@pytest.mark.parametrize(
    ("kwargs", "said"),
    [
        ({"customer_id": "7"}, "takes customer_id: int, and was given the str '7'. Write customer_id=7."),
        ({"customer_id": "abc"}, "takes customer_id: int, and was given the str 'abc'. Write an int."),
        ({"customer_id": True}, "takes customer_id: int, and was given the bool True. Write customer_id=1."),
        ({"customer_id": 7.0}, "takes customer_id: int, and was given the float 7.0. Write customer_id=7."),
        ({"customer_id": 7.5}, "takes customer_id: int, and was given the float 7.5. Write an int."),
        ({"customer_id": None}, "takes customer_id: int, and was given None. Write an int."),
        ({"ids": [1, "2"]}, "takes ids: list[int] | None, and ids[1] is the str '2'. Write 2."),
        ({"ids": 7}, "takes ids: list[int] | None, and was given the int 7. Write list[int] | None."),
        ({"price": 12.5}, "takes price: Decimal, and was given the float 12.5. Write price=Decimal('12.5')."),
        ({"at": "2026-11-19T12:00Z"}, "Write at=datetime.fromisoformat('2026-11-19T12:00Z')."),
        ({"at": "noon"}, "takes at: datetime, and was given the str 'noon'. Write a datetime."),
        ({"key": str(SOME)}, f"Write key=UUID('{SOME}')."),
        (
            {"speed": "Fast"},
            "takes speed: Literal['fast', 'slow'], and was given the str 'Fast'. Write 'fast' or 'slow'.",
        ),
        ({"share": "0.5"}, "Write share=0.5."),
        ({"rest": 5}, "Write rest=timedelta(seconds=5)."),
        ({"other": "7"}, "takes other: int, and was given the str '7'. Write other=7."),
    ],
    ids=str,
)
def test_the_error_names_the_place_the_value_and_what_to_write(kwargs, said):
    with pytest.raises(ConfigurationError, match=re.escape(said)) as caught:
        bind(describe(of_plain), kwargs)
    assert str(caught.value).startswith(f"of_plain ({__name__}:")


def test_a_default_fits_even_if_its_annotation_says_otherwise():
    bind(describe(of_plain), {"implied": None})


def of_texts(a: "int", b: "Colour", c: "Missing", d: "Optional[int]" = None, e: "CustomerId" = 7): ...  # noqa: F821, UP045


def test_annotations_that_are_texts_are_read_where_the_function_is_written():
    function = describe(of_texts)
    assert {name: takes.text for name, takes in function.takes.items()} == {"a": "int", "d": "int | None", "e": "int"}
    bind(function, {"a": 1, "b": "red", "c": "anything"})
    with pytest.raises(ConfigurationError, match="takes a: int"):
        bind(function, {"a": "1", "b": "red", "c": "anything"})
