"""Chance of our own: an application that seeded `random` gets its numbers, whatever runs beside it."""

import os
import random
import threading

from tenure import Election, Scheduler
from tenure.util import randomness


def test_what_an_application_seeded_stays_as_it_is(sqlite_url):
    retried = threading.Event()
    scheduler = Scheduler(sqlite_url)

    @scheduler.every("1h", retries=1, backoff="10ms")
    def fails(run):
        if run.attempt > 1:
            retried.set()
        raise ValueError(run.attempt)

    random.seed(4711)
    before = random.getstate()
    with Election(sqlite_url, "x", label="one") as one, Election(sqlite_url, "x", label="other") as other:
        assert one.wait_until_leading(10)
        one.resign()
        assert other.wait_until_leading(10)
        with scheduler:
            scheduler.run_now("fails")
            assert retried.wait(20)
    assert random.getstate() == before


def test_a_forked_child_draws_other_numbers_than_its_parent():
    ours, theirs = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(theirs, str(randomness.fraction()).encode())
        os._exit(0)
    os.close(theirs)
    with os.fdopen(ours) as told:
        drawn = float(told.read())
    os.waitpid(child, 0)
    assert drawn != randomness.fraction()


def test_numbers_are_where_they_should_be():
    assert all(0 <= randomness.fraction() < 1 for _ in range(1000))
    assert all(2 <= randomness.between(2, 3) <= 3 for _ in range(1000))
