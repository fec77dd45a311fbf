"""The small pure parts: folded tracebacks, drawings, words."""

from datetime import UTC, datetime, timedelta

import pytest

from tenure.errors import ConfigurationError
from tenure.web.drawings import SHAPES, bar, strip
from tenure.web.formats import ago, first_sentence, option, visible
from tenure.web.tracebacks import folded

NOW = datetime(2026, 11, 18, 12, 0, tzinfo=UTC)
TRACE = """Traceback (most recent call last):
  File "/venv/lib/python3.11/site-packages/tenure/scheduling/attempt.py", line 3, in call
    return function(run)
  File "/srv/shop/jobs.py", line 12, in invoices
    json.loads(text)
    ~~~~~~~~~~^^^^^^
  File "/usr/lib/python3.11/json/__init__.py", line 346, in loads
    return _default_decoder.decode(s)
  File "/usr/lib/python3.11/json/decoder.py", line 337, in decode
    obj, end = self.raw_decode(s)
json.decoder.JSONDecodeError: Expecting value

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "/srv/shop/jobs.py", line 14, in invoices
    raise Broken
shop.Broken: bad file"""


def test_frames_of_libraries_are_folded_and_nothing_is_lost():
    parts = folded(TRACE)
    assert "\n".join(part.text for part in parts) == TRACE
    assert [(part.folded, part.frames) for part in parts] == [(False, 0), (True, 1), (False, 0), (True, 2), (False, 0)]
    assert "/srv/shop/jobs.py" in parts[2].text
    assert "JSONDecodeError" in parts[4].text


@pytest.mark.parametrize("text", ["", "its node died", "a\n\nb", '  File "x", line 1'])
def test_any_other_text_stays_as_it_is(text):
    assert "\n".join(part.text for part in folded(text)) == text


def test_every_state_has_a_shape_of_its_own():
    assert len(set(SHAPES.values())) == len(SHAPES)
    assert 'aria-label="Last 60 runs: none yet"' in strip([])
    assert "3 of 4" in bar(3, 4)
    assert bar(3, 0) == ""


def test_times_are_relative_with_the_exact_one_beside():
    assert ">2 h ago<" in ago(NOW - timedelta(hours=2), NOW)
    assert ">in 3 days<" in ago(NOW + timedelta(days=3, hours=1), NOW)
    assert 'data-at="Wed 2026-11-18 10:00:00 UTC"' in ago(NOW - timedelta(hours=2), NOW)
    assert ago(None, NOW) == ""


def test_words():
    assert first_sentence("Every 2 s of elapsed time, counted from 1970-01-01 00:00:00 UTC. Clock …") == "Every 2 s"
    assert [option(value) for value in (None, True, 0.0, (1.0, 300.0), "skip", 3)] == [
        "none", "yes", "0 ms", "1.0 s, 5 min", "skip", "3"
    ]  # fmt: skip
    assert visible("a\x1b[2Jb\u202ec\n") == "a\\x1b[2Jb\\u202ec\n"
    assert visible(ConfigurationError("a\x1b")) == "a\\x1b"  # whatever a template prints
