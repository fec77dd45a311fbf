"""Beside the walk: every kind of clock change from 2005 to 2037.

All of them one by one: `python3 dev.py test-triggers`.
"""

from datetime import UTC, datetime
from functools import lru_cache

import pytest

from tenure.triggers.zones import timeline
from triggers.comparison import JOBS, all_changes, differences, expectations, one_of_each_kind, window
from triggers.walker import Change, changes, walk

PARTS = 6


@lru_cache(maxsize=1)
def kinds() -> list[Change]:
    return one_of_each_kind(all_changes())


def test_there_is_enough_to_compare():
    assert len(kinds()) > 100
    assert len(JOBS) >= 40
    assert {job.wildcard for job in JOBS} == {True, False}


@pytest.mark.parametrize("part", range(PARTS))
def test_every_kind_of_clock_change(part):
    found = []
    for change in kinds()[part::PARTS]:
        found += differences(change, expectations(walk(change.key, *window(change))))
    assert not found, "\n".join(found[:20])


@pytest.mark.parametrize(
    "key", ["America/New_York", "Africa/Casablanca", "Asia/Gaza", "Europe/Dublin", "Asia/Seoul", "UTC"]
)
def test_a_timeline_has_the_changes_that_the_clocks_show(key):
    line = timeline(key)
    seen = [(change.instant, change.after) for change in changes(key, 1990, 2098)]
    listed = [
        (datetime.fromtimestamp(start, UTC), after)
        for start, after in zip(line.starts[1:], line.offsets[1:], strict=True)
    ]
    assert [(start, after.total_seconds()) for start, after in seen] == [
        pair for pair in listed if 1990 <= pair[0].year <= 2098
    ]


def test_a_timeline_goes_on_as_long_as_one_asks():
    line = timeline("America/New_York")
    while line.end < 253_000_000_000:
        line = line.longer()
    last = datetime.fromtimestamp(line.starts[-1], UTC)
    assert (last.month, last.hour) == (11, 6)
    assert len(line.starts) == len(timeline("America/New_York").starts) + 2 * (last.year - 2099)
