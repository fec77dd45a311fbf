"""Guards: who is first."""

from uuid import uuid4

import pytest


@pytest.fixture
def name():
    return f"guard {uuid4()}"


def test_the_first_passes_and_nobody_after(ledger, name):
    assert ledger.guard(name, "k", None, "one")
    assert not ledger.guard(name, "k", None, "one")
    assert not ledger.guard(name, "k", None, "another")


def test_names_and_keys_are_apart(ledger, name):
    assert ledger.guard(name, "k", None, "one")
    assert ledger.guard(name, "other", None, "one")
    assert ledger.guard(name + " too", "k", None, "one")


def test_within_a_span_one_passes(ledger, name):
    assert ledger.guard(name, "k", 60.0, "one")
    assert not ledger.guard(name, "k", 60.0, "another")
    assert ledger.guard(name, "k", 0.0, "another"), "the last is at least that long ago"
    assert not ledger.guard(name, "k", 60.0, "one")


def test_a_refusal_does_not_begin_the_span_anew(ledger, scene, name):
    assert ledger.guard(name, "k", 0.2, "one")
    began = ledger.now()
    while ledger.now() < began + 0.2:
        ledger.guard(name, "k", 60.0, "another")
    assert ledger.guard(name, "k", 0.2, "one")


def test_what_failed_may_be_tried_again(ledger, name):
    assert ledger.guard(name, "k", None, "one")
    ledger.unguard(name, "k", "one")
    assert ledger.guard(name, "k", None, "another")


def test_taking_back_what_was_not_given(ledger, name):
    ledger.unguard(name, "k", "one")
    assert ledger.guard(name, "k", None, "one")


def test_the_pass_of_another_is_not_taken_back(ledger, name):
    assert ledger.guard(name, "k", None, "one")
    ledger.unguard(name, "k", "another")
    assert not ledger.guard(name, "k", None, "another")
