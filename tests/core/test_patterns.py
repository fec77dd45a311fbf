"""`report:*` and what it stands for."""

import fnmatch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenure.core.patterns import glob, is_pattern, like, matches

TEXTS = st.text(alphabet="ab:*?[]%_\\.", max_size=8)


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
