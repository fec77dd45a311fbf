"""Policies as people write them: what they mean, and what is said to a wrong one."""

import json
from dataclasses import fields
from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tenure.core.job_options import OPTIONS, Policy, UnreadableRules, rules, rules_of, written_rules
from tenure.core.records import Rules
from tenure.errors import ConfigurationError
from tenure.util.names import named


def refused(**policy) -> str:
    with pytest.raises(ConfigurationError) as caught:
        rules(policy, where="daily")
    assert str(caught.value).startswith("daily: ")
    return str(caught.value)


def test_nothing_given_is_the_defaults():
    assert rules({}, where="daily") == Rules()


def test_the_words_of_policy_are_the_fields_of_rules():
    assert set(Policy.__annotations__) == {field.name for field in fields(Rules)}


def test_durations_become_seconds():
    policy = {"grace": "5m", "timeout": timedelta(hours=1), "jitter": 2, "spread": "250ms"}
    assert rules(policy, where="daily") == Rules(grace=300.0, timeout=3600.0, jitter=2.0, spread=0.25)


@pytest.mark.parametrize(
    ("written", "meant"),
    [("10s", (10.0, 300.0)), ("10m", (600.0, 600.0)), (("10s", "1m"), (10.0, 60.0)), (0, (0.0, 300.0))],
)
def test_backoff_is_the_first_pause_and_the_longest(written, meant):
    assert rules({"backoff": written}, where="daily").backoff == meant


def test_allow_has_no_limit_unless_one_is_given():
    assert rules({"overlap": "allow"}, where="daily").max_running is None
    assert rules({"overlap": "allow", "max_running": 3}, where="daily").max_running == 3
    assert rules({"overlap": "wait"}, where="daily").max_running == 1


@pytest.mark.parametrize("overlap", ["skip", "wait", "replace"])
def test_no_limit_is_refused_where_there_is_something_to_do_at_a_limit(overlap):
    assert "overlap='allow'" in refused(overlap=overlap, max_running=None)


def test_no_limit_alone_names_the_default_that_it_contradicts():
    assert "overlap='skip'" in refused(max_running=None)


@pytest.mark.parametrize("word", ["grace", "timeout", "expect_within"])
def test_none_is_none(word):
    assert getattr(rules({word: None}, where="daily"), word) is None


@pytest.mark.parametrize(
    ("word", "value"),
    [
        ("missed", "lates"),
        ("missed", None),
        ("overlap", "queue"),
        ("on_lost", True),
        ("grace", 0),
        ("grace", "20"),
        ("grace", float("nan")),
        ("timeout", -1),
        ("timeout", 0),
        ("expect_within", 0),
        ("expect_within", "soon"),
        ("retries", -1),
        ("retries", True),
        ("retries", 1.0),
        ("retries", "3"),
        ("max_running", 0),
        ("max_running", False),
        ("max_lost", 0),
        ("max_lost", None),
        ("backoff", -1),
        ("backoff", ("10m", "10s")),
        ("backoff", ("1s", "2s", "3s")),
        ("jitter", -0.5),
        ("jitter", None),
        ("spread", "soon"),
        ("queue", ""),
        ("queue", "a\nb"),
        ("queue", 7),
    ],
)
def test_a_wrong_value_is_refused_and_shown(word, value):
    message = refused(**{word: value})
    assert message.startswith(f"daily: {word}: ")
    assert repr(value) in message or repr(value)[:6] in message


def test_a_misspelt_value_is_answered_with_the_nearest():
    assert "Did you mean 'latest'?" in refused(missed="lates")


def test_a_misspelt_word_is_answered_with_the_nearest():
    assert "Did you mean retries=?" in refused(retrys=3)


def test_a_word_like_no_other_is_answered_with_all():
    assert all(field.name in refused(zzz=1) for field in fields(Rules))


@pytest.mark.parametrize(
    ("word", "value", "ours"),
    [
        ("misfire_grace_time", 30, "grace="),
        ("coalesce", True, "missed='latest'"),
        ("coalesce", False, "missed='all'"),
        ("catchup", True, "missed='all'"),
        ("max_instances", 4, "max_running=4"),
        ("replace_existing", True, "not needed"),
        ("next_run_time", None, "run_now"),
        ("expires", 60, "grace=60"),
        ("soft_time_limit", 20, "timeout=20"),
        ("time_limit", 20, "timeout=20"),
        ("sla", "15m", "expect_within='15m'"),
        ("max_retries", 5, "retries=5"),
        ("retry_backoff", True, "backoff="),
        ("retry_backoff_max", 600, "backoff=("),
        ("countdown", 10, "at("),
        ("args", [1], "kwargs={…}"),
    ],
)
def test_the_words_of_other_schedulers_are_answered_with_ours(word, value, ours):
    message = refused(**{word: value})
    assert ours in message
    assert "another scheduler" in message


def test_a_name_has_1_to_200_characters_and_none_of_them_controls():
    assert named("Bericht für Zoë · 報告", "job name") == "Bericht für Zoë · 報告"
    assert named("x" * 200, "job name")
    for wrong in ("", "  ", "x" * 201, "a\0b", "a\x85b", "\ud800", b"x", None):
        with pytest.raises(ConfigurationError, match=r"^job name: "):
            named(wrong, "job name")


seconds = st.floats(0, 1e7)
every_rules = st.builds(
    Rules,
    missed=st.sampled_from(["latest", "skip", "all"]),
    grace=st.none() | st.floats(0.001, 1e7),
    overlap=st.just("allow"),
    max_running=st.none() | st.integers(1, 100),
    timeout=st.none() | st.floats(0.001, 1e7),
    retries=st.integers(0, 1000),
    backoff=st.tuples(seconds, seconds).map(lambda pair: (min(pair), max(pair))),
    on_lost=st.sampled_from(["retry", "fail"]),
    max_lost=st.integers(1, 10),
    jitter=seconds,
    spread=seconds,
    queue=st.text("abcäöü·", min_size=1),
)


@settings(deadline=None)
@given(every_rules)
def test_rules_come_back_from_a_row(some):
    assert rules_of(json.dumps(written_rules(some))) == some


def test_options_of_newer_versions_are_ignored_and_absent_ones_have_their_default():
    assert rules_of('{"retries": 2, "budget": 7}') == Rules(retries=2)


def test_a_row_has_only_what_differs_from_the_defaults():
    assert written_rules(Rules()) == {}
    assert written_rules(rules({"jitter": "5s"}, where="daily")) == {"jitter": 5.0}


@pytest.mark.parametrize("text", ["", "nonsense", "[]", "null", '{"retries":-1}', '{"max_running":0}', "[" * 100_000])
def test_a_row_that_cannot_be_read_says_why(text):
    found = rules_of(text)
    assert isinstance(found, UnreadableRules)
    assert found.why
    assert found != Rules()


def test_there_is_one_list_of_options():
    names = [field.name for field in fields(Rules)]
    assert names == list(OPTIONS) == list(Policy.__annotations__)


def test_tags_are_sorted_and_each_there_once():
    assert rules({"tags": ["reports", "customer-7", "reports"]}, where="daily").tags == ("customer-7", "reports")
    assert rules({"tags": ()}, where="daily") == Rules()
    kept = json.dumps(written_rules(Rules(tags=("a", "b"))))
    assert json.loads(kept) == {"tags": ["a", "b"]}
    assert rules_of(kept) == Rules(tags=("a", "b"))
    assert isinstance(rules_of('{"tags": [1]}'), UnreadableRules)


@pytest.mark.parametrize(
    ("tags", "said"),
    [
        ("reports", "tags=['customer-7', 'reports']"),
        (7, "tags=['customer-7', 'reports']"),
        (["two words"], "without spaces"),
        (["x" * 101], "at most 100 characters"),
        ([""], "empty"),
        ([7], "Write a text"),
        ([f"t{n}" for n in range(21)], "at most 20"),
    ],
)
def test_what_is_not_a_tag_is_refused(tags, said):
    assert said in refused(tags=tags)
