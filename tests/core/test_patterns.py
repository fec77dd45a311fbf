"""`report:*` and what it stands for."""

import fnmatch
import sqlite3
from contextlib import closing

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenure.core.patterns import checked, glob, is_pattern, like, matches
from tenure.errors import ConfigurationError

TEXTS = st.text(alphabet="ab:*?[]%_\\.", max_size=8)
WICKED = ["*?" * 12 + "X", "*a" * 99 + "*X", "?*" * 99 + "X", "*" * 199 + "X"]
"""Patterns on which backtracking takes for ever."""


@pytest.mark.parametrize(("pattern", "name"), [("report:*", "report:7"), ("*", ""), ("a?c", "abc"), ("a.c", "a.c")])
def test_a_pattern_stands_for_names(pattern, name):
    assert matches(pattern, name)


@pytest.mark.parametrize(("pattern", "name"), [("report:*", "reports"), ("a?c", "ac"), ("a.c", "abc"), ("A", "a")])
def test_a_pattern_does_not_stand_for_other_names(pattern, name):
    assert not matches(pattern, name)


@given(TEXTS, TEXTS)
def test_only_two_characters_have_a_meaning(pattern, name):
    if not is_pattern(pattern):
        assert matches(pattern, name) == (pattern == name)
    assert matches(pattern, name) == fnmatch.fnmatchcase(name, pattern.replace("[", "[[]"))


def test_the_forms_of_the_stores():
    assert like("a_b%c*d?\\") == "a\\_b\\%c%d_\\\\"
    assert glob("a[1]*?") == "a[[]1]*?"


@pytest.mark.timeout(20)
@pytest.mark.parametrize("pattern", WICKED)
def test_no_pattern_takes_for_ever(pattern):
    assert not any(matches(pattern, name) for name in ("a" * 199, "a" * 98 + "b" * 101 + "c", "ab" * 99 + "a."))
    assert matches(pattern.replace("X", "*"), "a" * 200)
    with closing(sqlite3.connect(":memory:")) as database:
        assert database.execute("SELECT ? GLOB ?", ("a" * 199 + ".", glob(pattern))).fetchone() == (0,)


def brute(pattern, name):
    """The same by its definition."""
    if not pattern:
        return not name
    if pattern[0] == "*":
        return any(brute(pattern[1:], name[i:]) for i in range(len(name) + 1))
    return bool(name) and pattern[0] in {"?", name[0]} and brute(pattern[1:], name[1:])


@given(st.text(alphabet="ab*?\n", max_size=7), st.text(alphabet="ab*?\n", max_size=7))
def test_it_stands_for_what_its_definition_says(pattern, name):
    assert matches(pattern, name) == brute(pattern, name)


@given(st.lists(st.tuples(TEXTS, TEXTS), min_size=1, max_size=20))
def test_glob_stands_for_the_same_names(pairs):
    with closing(sqlite3.connect(":memory:")) as database:
        for pattern, name in pairs:
            assert database.execute("SELECT ? GLOB ?", (name, glob(pattern))).fetchone() == (matches(pattern, name),)


def test_no_pattern_is_longer_than_a_name():
    assert checked("*" * 200)
    with pytest.raises(ConfigurationError, match="201 characters"):
        checked("*" * 201)
