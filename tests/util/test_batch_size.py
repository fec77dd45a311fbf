"""How large a batch is after failures, and how it grows again."""

import pytest

from tenure.util.batch_size import QUICK, BatchSize


def fallen(most=1000):
    size = BatchSize(most)
    while size.now > 1:
        size.failed(size.now)
    return size


@pytest.mark.parametrize("answers_after", [QUICK / 10, QUICK * 4])
def test_a_batch_grows_again_after_an_outage_however_far_the_database_is(answers_after):
    size = fallen()
    for _ in range(10):
        size.worked(answers_after)
    assert size.now == size.most


def test_a_batch_does_not_grow_where_size_is_what_takes_the_time():
    size = fallen()
    for _ in range(100):
        size.worked(QUICK + QUICK * size.now)
    assert size.now < 8


def test_what_was_too_large_is_halved_at_once():
    size = BatchSize(1000)
    size.failed(8)
    assert size.now == 4


def test_the_failure_of_a_single_one_halves_a_batch_at_most():
    size = BatchSize(1000)
    size.failed(1)
    assert size.now == 500


def test_a_batch_never_leaves_its_bounds():
    size = BatchSize(100, 30)
    for _ in range(3):
        size.failed(size.now)
    assert size.now == 30
    for _ in range(3):
        size.worked(0.0)
    assert size.now == 100
