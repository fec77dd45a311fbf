"""Arguments as text: what comes back, that equal ones are written alike by every process, and what is refused."""

import json
import os
import subprocess
import sys
import uuid
from collections import OrderedDict, defaultdict, namedtuple
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, timezone, tzinfo
from decimal import Decimal
from enum import Enum, IntEnum, StrEnum
from importlib.resources import files
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from asyncpg.pgproto.pgproto import UUID as DriversUUID  # noqa: N811 - a class of its own
from hypothesis import example, given, settings
from hypothesis import strategies as st

from harness.scratch import eventually
from tenure import Scheduler
from tenure.cli import main
from tenure.core.arguments import MAX_ARGUMENTS, TAG, decode, differing, encode, plain
from tenure.errors import ConfigurationError, UnreadableArguments
from tenure.triggers import zone

BERLIN = ZoneInfo("Europe/Berlin")
EVERY_KIND = {
    "when": datetime(2026, 10, 25, 2, 30, tzinfo=BERLIN, fold=1),
    "since": date(2026, 1, 1),
    "at": time(3, 0),
    "grace": timedelta(minutes=-5, microseconds=1),
    "order": uuid.UUID("00000000-0000-4000-8000-000000000007"),
    "amount": Decimal("12.50"),
    "blob": b"\x00\xff",
    "pair": (1, [2, (3,)]),
    "tags": {"b", "a", ("c", frozenset({1, 2}))},
    "plain": {"list": [1, 2.5, None, True, "text"]},
}

NAMED = [ZoneInfo(name) for name in ("Europe/Berlin", "UTC", "America/St_Johns", "Pacific/Apia", "Africa/Monrovia")]

# What comes back

zones = (
    st.none() | st.builds(timezone, st.timedeltas(timedelta(hours=-23), timedelta(hours=23))) | st.sampled_from(NAMED)
)
leaves = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(),
    st.binary(),
    st.uuids(),
    st.decimals(allow_nan=False, allow_infinity=False),
    st.dates(),
    st.timedeltas(),
    st.builds(lambda t, fold: t.replace(fold=fold), st.datetimes(timezones=zones), st.integers(0, 1)),
    st.builds(lambda t, fold: t.replace(fold=fold), st.times(timezones=zones), st.integers(0, 1)),
)
keys = st.text() | st.sampled_from([TAG, "$" + TAG, "datetime", "__tenure__"])
members = st.recursive(leaves, lambda inner: st.frozensets(inner, max_size=3) | st.tuples(inner, inner), max_leaves=5)
values = st.recursive(
    leaves | members,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(keys, inner, max_size=3),
        st.tuples(inner, inner),
        st.sets(members, max_size=4),
        st.builds(lambda kind, value: {TAG: [kind, value]}, st.sampled_from(["date", "tuple", "dict"]), inner),
    ),
    max_leaves=15,
)


def exactly(value):
    """All that a body could tell from another value, in a form that can be compared."""
    kind = type(value)
    match value:
        case dict():
            return kind, frozenset((key, exactly(item)) for key, item in value.items())
        case list() | tuple():
            return kind, tuple(map(exactly, value))
        case set() | frozenset():
            return kind, frozenset(map(exactly, value))
        case datetime() | time():
            where = value.tzinfo if isinstance(value.tzinfo, ZoneInfo) else value.utcoffset()
            return kind, value.replace(tzinfo=None).isoformat(), value.fold, where
        case _:
            return kind, repr(value)


@settings(deadline=None)
@given(st.dictionaries(keys, values, max_size=4))
@example(EVERY_KIND)
@example({TAG: {TAG: {TAG: ["date", "2026-11-16"]}}})
@example({"a": {TAG: ["date", "2026-11-16"]}})
def test_arguments_come_back_as_they_were(kwargs):
    text = encode(kwargs)
    assert exactly(decode(text)) == exactly(kwargs)
    assert encode(decode(text)) == text, "one text for one value"
    json.dumps(plain(kwargs), allow_nan=False)


plain_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=15,
)


@settings(deadline=None)
@given(st.dictionaries(st.text(), plain_json, max_size=4))
def test_plain_json_is_written_as_json(kwargs):
    assert encode(kwargs) == json.dumps(kwargs, separators=(",", ":"), ensure_ascii=False, sort_keys=True)


def test_a_time_keeps_its_zone_its_offset_and_its_fold():
    def back(value):
        return decode(encode({"t": value}))["t"]

    assert back(datetime(2026, 11, 16)).tzinfo is None
    assert back(datetime(2026, 11, 16, tzinfo=UTC)).tzinfo is UTC
    assert back(datetime(2026, 11, 16, tzinfo=BERLIN)).tzinfo is BERLIN, (
        "arithmetic with the program's own times stays on the wall clock"
    )
    assert back(datetime(2026, 11, 16, tzinfo=zone("Asia/Seoul"))).tzinfo is ZoneInfo("Asia/Seoul"), (
        "as run.scheduled_for has it"
    )
    offset = timezone(timedelta(hours=5, minutes=45, seconds=7))
    assert back(datetime(2026, 11, 16, tzinfo=offset)).utcoffset() == timedelta(hours=5, minutes=45, seconds=7)
    twice = [datetime(2026, 10, 25, 2, 30, tzinfo=BERLIN, fold=fold) for fold in (0, 1)]
    assert [back(one).utcoffset() for one in twice] == [timedelta(hours=2), timedelta(hours=1)]
    assert back(time(8, tzinfo=BERLIN)).tzinfo is BERLIN


def test_a_uuid_of_a_driver_comes_back_as_a_uuid():
    given_ = DriversUUID("00000000-0000-4000-8000-000000000007")
    assert type(given_) is not uuid.UUID
    back = decode(encode({"order": given_}))["order"]
    assert type(back) is uuid.UUID
    assert back == given_


def test_arguments_are_shown_in_words_of_json():
    assert plain(EVERY_KIND) == {
        "when": "2026-10-25T02:30:00+01:00",
        "since": "2026-01-01",
        "at": "03:00:00",
        "grace": -299.999999,
        "order": "00000000-0000-4000-8000-000000000007",
        "amount": "12.50",
        "blob": "AP8=",
        "pair": [1, [2, [3]]],
        "tags": ["a", "b", ["c", [1, 2]]],
        "plain": {"list": [1, 2.5, None, True, "text"]},
    }


# One text for one value

WRITES = """
from tenure.core.arguments import encode
words = {"delta", "alpha", "echo", "bravo", "charlie", ("pair", frozenset({"x", "y", "z"}))}
print(list(words))
print(encode({"words": words, "b": {"z": 1, "a": {2, 3}}}))
"""


def test_every_process_writes_the_same_text_whatever_its_hash_seed():
    def written(seed):
        environment = os.environ | {"PYTHONHASHSEED": seed}
        run = subprocess.run(
            [sys.executable, "-c", WRITES], env=environment, capture_output=True, text=True, check=True
        )
        return run.stdout.splitlines()

    (order, text), (other_order, other_text) = written("1"), written("2")
    assert order != other_order, "the test would prove nothing"
    assert text == other_text


def test_equal_arguments_give_equal_texts():
    assert encode({"a": 1, "b": {3, 1, 2}}) == encode({"b": {2, 3, 1}, "a": 1})


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def scheduler(request):
    places = {"sqlite": "sqlite_url", "postgres": "database"}
    url = request.getfixturevalue(places[request.param]) if request.param in places else "memory://"
    return Scheduler(url, capacity=1)


def test_a_body_is_given_every_kind_and_the_same_key_is_the_same_run(scheduler):
    found = []

    @scheduler.job
    def pay(**kwargs):
        found.append(kwargs)

    with scheduler:
        asked = scheduler.run_now("pay", kwargs=EVERY_KIND, key="invoice-17")
        again = dict(reversed(EVERY_KIND.items())) | {"tags": {("c", frozenset({2, 1})), "a", "b"}}
        assert scheduler.run_now("pay", kwargs=again, key="invoice-17").id == asked.id
        with pytest.raises(ConfigurationError, match="same arguments"):
            scheduler.run_now("pay", kwargs=EVERY_KIND | {"amount": Decimal("12.5")}, key="invoice-17")
        eventually(lambda: scheduler.find_run(asked.id).state == "succeeded", what="the end of the run")
        scheduler.add(pay, None, name="monthly", kwargs={"pair": (1,)})
        updated = scheduler.update("monthly", kwargs=EVERY_KIND)
        assert exactly(scheduler.find_job("monthly").kwargs) == exactly(EVERY_KIND) == exactly(updated.kwargs)
        assert json.loads(json.dumps(updated.as_dict()))["kwargs"] == plain(EVERY_KIND)
    assert exactly(found) == exactly([EVERY_KIND])


def test_the_command_line_takes_tags_and_shows_words_of_json(sqlite_url, capsys):
    scheduler = Scheduler(sqlite_url, capacity=0)

    @scheduler.job
    def pay(**kwargs): ...

    scheduler.start()
    given_ = '{"since": {"$tenure": ["date", "2026-11-16"]}, "ids": {"$tenure": ["set", [2, 1]]}}'
    assert main(["run-now", "pay", "--kwargs", given_, "--url", sqlite_url, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["kwargs"] == {"since": "2026-11-16", "ids": [1, 2]}
    assert scheduler.runs()[0].kwargs == {"since": date(2026, 11, 16), "ids": {1, 2}}
    assert main(["run-now", "pay", "--kwargs", given_.replace("date", "day"), "--url", sqlite_url]) == 2
    error = capsys.readouterr().err
    assert "this version of tenure cannot read the type 'day'" in error
    assert "2026-11-16" not in error  # the same text becomes the reason of a run


# What is refused


class Colour(Enum):
    RED = 1


class Level(IntEnum):
    HIGH = 1


class Status(StrEnum):
    PAID = "paid"


class Words(str):
    __slots__ = ()


class Stamp(datetime):
    pass


class Elsewhere(tzinfo):
    def utcoffset(self, _):
        return timedelta(0)


@dataclass
class Customer:
    name: str


Point = namedtuple("Point", "x y")  # noqa: PYI024 - the plain kind
with (files("tzdata") / "zoneinfo" / "UTC").open("rb") as file:
    LOCAL = ZoneInfo.from_file(file, key="localtime")  # another zone on every machine
endless: list = []
endless.append(endless)


@pytest.mark.parametrize(
    ("kwargs", "path", "advice"),
    [
        ({"what": object()}, "kwargs['what']: <object", "Write text, numbers, lists and dicts, or the key of a row"),
        ({"deep": [{"what": {(1, Path("x"))}}]}, "kwargs['deep'][0]['what'], a member[1]: PosixPath('x')", "Write str(value)"),
        ({"rate": float("nan")}, "kwargs['rate']: nan", "Write None"),
        ({"rate": float("-inf")}, "kwargs['rate']: -inf", "Write None"),
        ({"rate": Decimal("NaN")}, "kwargs['rate']: Decimal('NaN')", "Write None"),
        ({"rate": Decimal("sNaN")}, "kwargs['rate']: Decimal('sNaN')", "Write None"),
        ({"rate": Decimal("Infinity")}, "kwargs['rate']: Decimal('Infinity')", "Write None"),
        ({"big": 1 << 20_000}, "kwargs['big']: a number of 20,001 bits", "Write a text: hex(value)"),
        ({"by": {7: "x"}}, "kwargs['by']: the key 7", "write '7'"),
        ({"text": "\ud800"}, "kwargs['text']", "half a character"),
        ({"list": endless}, "kwargs['list'][0][0]", "contains itself"),
        ({"blob": "x" * MAX_ARGUMENTS}, "kwargs: 65,547 bytes", "table"),
        ([1], "kwargs: [1]", "Write kwargs={"),
        ({"colour": Colour.RED}, "kwargs['colour']: <Colour.RED: 1>", "Write value.value"),
        ({"level": Level.HIGH}, "kwargs['level']: <Level.HIGH: 1>", "Write value.value"),
        ({"status": Status.PAID}, "kwargs['status']: <Status.PAID: 'paid'>", "Write value.value"),
        ({"customer": Customer("Ada")}, "kwargs['customer']: Customer(name='Ada')", "Write dataclasses.asdict(value)"),
        ({"at": Point(1, 2)}, "kwargs['at']: Point(x=1, y=2)", "Write tuple(value), or value._asdict()"),
        ({"by": defaultdict(list)}, "kwargs['by']: defaultdict", "come back as a plain dict. Write dict(value)"),
        ({"by": OrderedDict()}, "kwargs['by']: OrderedDict", "Write dict(value)"),
        ({"text": Words("x")}, "kwargs['text']: 'x'", "Write ''.join(value)"),
        ({"when": Stamp(2026, 1, 1)}, "kwargs['when']: Stamp(", "Write a plain datetime"),
        ({"blob": bytearray(b"x")}, "kwargs['blob']: bytearray(b'x')", "Write bytes(value)"),
        ({"when": datetime(2026, 1, 1, tzinfo=Elsewhere())}, "kwargs['when']: datetime.datetime(", "zoneinfo.ZoneInfo("),
        ({"when": datetime(2026, 1, 1, tzinfo=LOCAL)}, "kwargs['when']: 'localtime'", "Write a name such as"),
        ({"at": time(3, tzinfo=Elsewhere())}, "kwargs['at']: datetime.time(", "zoneinfo.ZoneInfo("),
    ],
)  # fmt: skip
def test_what_cannot_be_kept_is_refused_with_its_place_its_value_and_what_to_write(kwargs, path, advice):
    with pytest.raises(ConfigurationError) as refusal:
        encode(kwargs)
    assert str(refusal.value).startswith(path)
    assert advice in str(refusal.value)


@pytest.mark.parametrize(
    "tag",
    [
        '["century", 21]',
        '["set", [[]]]',
        '["set", "abc"]',
        '["tuple"]',
        '["date", "yesterday"]',
        '["date", "2026-11-16", 1]',
        '["datetime", "2026-11-16T08:00:00", "Mars/Olympus"]',
        '["datetime", "2026-11-16T08:00:00", "/etc/passwd"]',
        '["datetime", "2026-11-16T08:00:00", "Europe"]',
        '["datetime", "2026-11-16T08:00:00", null, 7]',
        '["timedelta", 99999999999, 0, 0]',
        '["bytes", "*"]',
        '["UUID", "7"]',
        '["Decimal", "NaN"]',
        '["Decimal", "1E+99999999999999999999"]',
        '["dict", 7]',
        "{}",
        "null",
        '["date", "2026-11-16"], "beside": 1',
        '["date", "2026-11-16"], "nan": NaN',
    ],
)
def test_a_tag_that_cannot_be_read_is_never_guessed_at(tag):
    with pytest.raises(UnreadableArguments, match="not JSON as tenure writes it"):
        decode(f'{{"x": {{"{TAG}": {tag}}}}}')


@pytest.mark.parametrize(
    "text",
    [
        '{"x": "hunter2", }',
        '["hunter2"]',
        f'{{"x": {{"{TAG}": ["date", "hunter2"]}}}}',
        f'{{"x": {{"{TAG}": ["datetime", "2026-11-16", "hunter2"]}}}}',
        f'{{"x": {{"{TAG}": ["secret", "hunter2"]}}}}',
        f'{{"x": {{"{TAG}": "hunter2"}}}}',
    ],
)
def test_what_cannot_be_read_is_not_told(text):
    with pytest.raises(UnreadableArguments) as refused:
        decode(text)
    assert "hunter2" not in str(refused.value)


@pytest.mark.parametrize(
    ("one", "other", "said"),
    [
        ('{"a":1,"b":"x"}', '{"a":1,"b":"y"}', "b changed"),
        ('{"a":1}', '{"b":1}', "a, b changed"),
        ('{"a":1}', '{"a":true}', "a changed"),
        ('{"a":null}', "{}", "a changed"),
        ('{"a":1}', '{ "a": 1 }', "written differently"),
        ('{"a":1}', "[1]", "changed, and cannot be read"),
        ('{"a":1}', '{"a":', "changed, and cannot be read"),
    ],
)
def test_a_difference_of_arguments_names_them_and_no_value(one, other, said):
    assert differing(one, other) == said


@settings(deadline=None)
@given(st.text() | st.builds(lambda value: json.dumps({"x": {TAG: value}}), plain_json))
def test_any_text_is_read_or_refused(text):
    with suppress(UnreadableArguments):
        decode(text)
