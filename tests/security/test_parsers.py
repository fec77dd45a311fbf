"""Whatever text comes in, a parser understands it or says what is wrong with it; it never fails in any other way."""

import json
import math
import string
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from security.drawn import bounded
from security.rows import DEEP, cards
from tenure.core import job_options
from tenure.core.arguments import decode, encode
from tenure.core.job_options import UnreadableRules, rules_of
from tenure.core.planning import ahead, retry_in
from tenure.core.records import Rules
from tenure.errors import ConfigurationError
from tenure.stores.host_lock import file_of
from tenure.stores.row_checks import host_card, ttl_of
from tenure.triggers import calendar, cron, every, from_json
from tenure.triggers.grammar import normalise, parse
from tenure.util import urls
from tenure.util.durations import LONGEST, seconds
from tenure.util.names import named

NOW = datetime(2026, 3, 29, 0, 59, tzinfo=UTC)
SCRAPS = st.one_of(
    st.text(max_size=40), st.text("0123456789*/,-#LW?@ \tMONJAN", max_size=40), st.text(string.printable, max_size=40)
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=10), inner, max_size=4),
    max_leaves=12,
)
TRIGGERS = [
    cron("0 3 * * *", tz="Europe/Berlin").to_json(),
    every("30s", anchor=NOW).to_json(),
    calendar(months=2, at="09:00", start="2026-01-31", tz="Asia/Seoul").to_json(),
    (cron("@daily") | every("1h")).to_json(),
]


def understood(call, *given):
    """What a parser made of it; None if it refused it in its own words."""
    try:
        return call(*given)
    except ConfigurationError:
        return None


@bounded
@given(SCRAPS)
@example("*" * 10_000)
@example("0 0 * * *" + " " * 100_000)
@example("1" * 10_000 + " * * * *")
@example("@" * 1000)
@example("0,".join("0" * 5000))
@example("\ud800 * * * *")
def test_cron(text):
    if (fields := understood(lambda: parse(normalise(text)))) is not None:
        assert fields.minutes
        due = cron(text).next_after(NOW)
        assert due is None or due > NOW


@bounded
@given(st.lists(st.text("0123456789*/,-LW#", min_size=1, max_size=6), min_size=5, max_size=6).map(" ".join))
def test_cron_of_the_right_length(text):
    if understood(lambda: parse(normalise(text))) is not None:
        due = cron(text).next_after(NOW)
        assert due is None or due > NOW


@bounded
@given(st.one_of(SCRAPS, st.text("0123456789.mshdw ", max_size=20), st.floats(), st.integers(), st.timedeltas()))
@example("9" * 400 + "s")
@example("9" * 5000 + "w")
@example(10**400)
@example("1e400s")
@example("٣s")
def test_durations(text):
    found = understood(seconds, text)
    assert found is None or (math.isfinite(found) and abs(found) <= LONGEST)


@bounded
@given(
    st.one_of(
        SCRAPS, SCRAPS.map("postgresql://{}".format), SCRAPS.map("sqlite:///{}".format), SCRAPS.map("host={}".format)
    )
)
@example("postgresql://[::1/db")
@example("postgresql://u:p@ho\uff0fst/db")
@example("postgresql://u:%zz@h:99999999/db?a=%")
@example("sqlite:///%00")
@example("\ud800://")
def test_urls(text):
    understood(urls.parse, text)


@pytest.mark.parametrize(
    "url", ["postgresql:///app", "postgresql://u@h:5432/db?sslmode=require", "postgresql://h1:1,h2:2/db"]
)
def test_urls_that_libpq_reads_are_left_as_they_are(url):
    assert urls.parse(url).conninfo == url


def mutated(draw, text):
    """A text with one of its parts replaced."""
    fields = json.loads(text)
    places = [fields]
    for place in places:
        places += [
            inner for inner in (place.values() if isinstance(place, dict) else place) if isinstance(inner, dict | list)
        ]
    place = draw(st.sampled_from([place for place in places if place]))
    key = draw(st.sampled_from(sorted(place) if isinstance(place, dict) else range(len(place))))
    place[key] = draw(JSON)
    return json.dumps(fields)


@st.composite
def nearly_triggers(draw):
    return mutated(draw, draw(st.sampled_from(TRIGGERS)))


@bounded
@given(st.one_of(SCRAPS, JSON.map(json.dumps), nearly_triggers()))
@example(DEEP)
@example('{"v": 1, "trigger": "every", "seconds": 1e-300}')
@example('{"v": 1, "trigger": "every", "seconds": 1e300}')
def test_triggers(text):
    trigger = understood(from_json, text)
    if trigger is not None:
        due = trigger.next_after(NOW)
        assert due is None or due > NOW
        now = NOW.timestamp()
        ahead(trigger, Rules(), application="a", name="j", now=now, horizon=now + 10, steps=50)


@st.composite
def nearly_rules(draw):
    return mutated(draw, json.dumps(job_options.written_rules(Rules(grace=5.0, timeout=1.0))))


@bounded
@given(st.one_of(SCRAPS, JSON.map(json.dumps), nearly_rules(), st.binary(max_size=20), st.none(), st.integers()))
@example(DEEP)
@example('{"timeout": 1e999}')
@example('{"timeout": NaN}')
@example('{"max_running": true}')
def test_rules_of_a_row(text):
    rules = rules_of(text)
    if not isinstance(rules, UnreadableRules):
        assert rules.timeout is None or 0 <= rules.timeout <= LONGEST
        assert 0 <= rules.on_time <= LONGEST
        assert rules.max_running is None or rules.max_running > 0
        assert retry_in(rules, 10**6, 0.5) is None or math.isfinite(retry_in(rules, 10**6, 0.5))
        ahead(every("1s"), rules, application="a", name="j", now=0.0, horizon=10.0)
    else:
        assert rules.why
        assert rules != Rules()


def of_people(text):
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, dict):
        return None
    known = {
        name: tuple(it) if isinstance(it, list) else it for name, it in found.items() if name in job_options.OPTIONS
    }
    return job_options.rules(known, where="job")


@bounded
@given(st.one_of(SCRAPS, JSON.map(json.dumps), nearly_rules()))
@example(DEEP)
def test_rules_of_people(text):
    rules = understood(of_people, text)
    if rules is not None:
        assert rules_of(json.dumps(job_options.written_rules(rules))) == rules, (
            "what people write can be read back from a row"
        )


@bounded
@given(st.one_of(JSON, JSON.map(json.dumps), st.sampled_from(list(cards())), st.binary(max_size=20)))
def test_host_evidence(host):
    card = host_card(host)
    if card is not None:
        assert 0 < card.pid < 2**31
        assert isinstance(card.nonce, str)


@bounded
@given(JSON)
def test_the_ttl_of_a_row(value):
    assert 0 < ttl_of(value) <= LONGEST


@bounded
@given(st.text(max_size=80))
@example("../../etc/passwd")
@example("/etc/passwd")
@example("..")
@example("a\0b")
def test_the_file_of_a_node_lies_in_its_directory(node):
    directory = Path("/run/tenure")
    path = file_of(directory, node, ".lock")
    assert path is None or path.parent == directory
    assert path is None or ".." not in path.parts


@bounded
@given(
    st.one_of(
        JSON, st.dictionaries(st.text(max_size=10) | st.integers(), JSON | st.binary() | st.datetimes(), max_size=5)
    )
)
def test_arguments(given_):
    text = understood(encode, given_)
    if text is not None:
        assert decode(text) == given_


@bounded
@given(st.one_of(SCRAPS, st.integers(), st.binary()))
def test_names(text):
    name = understood(named, text, "job name")
    assert name is None or (0 < len(name) <= 200 and not any(ord(c) < 32 for c in name))
