"""Open pages hear of changes: one poller per process, streams that end, and polling where there can be no stream."""

import threading
import time

import httpx

from harness.scratch import eventually
from tenure.web import live


def listen(base, heard, *, enough, seconds=8.0):
    """Counts the events of one stream."""
    with httpx.stream("GET", f"{base}/live", timeout=20) as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        end = time.monotonic() + seconds
        for line in answer.iter_lines():
            if line == "event: changed":
                heard.append(time.monotonic())
            if len(heard) >= enough or time.monotonic() > end:
                return


def test_a_change_reaches_an_open_page(resting, opened):
    browser, heard = opened(resting), []
    thread = threading.Thread(target=listen, args=(browser.home, heard), kwargs={"enough": 2})
    thread.start()
    eventually(lambda: heard)  # the first look
    time.sleep(1.5)
    pressed = time.monotonic()
    resting.run_now("nightly")  # from elsewhere
    thread.join(10)
    assert len(heard) == 2
    assert heard[1] - pressed < 4


def test_many_open_pages_cost_one_poller(resting, opened, monkeypatch):
    looks = []
    look = live.Live._look

    def counted(self, topics):
        looks.append(time.monotonic())
        return look(self, topics)

    monkeypatch.setattr(live.Live, "_look", counted)
    browser = opened(resting)
    threads = [
        threading.Thread(target=listen, args=(browser.home, []), kwargs={"enough": 99, "seconds": 3}) for _ in range(20)
    ]
    began = time.monotonic()
    for thread in threads:
        thread.start()
    eventually(lambda: len(looks) >= 3, within=20)
    took = looks[2] - looks[0]
    assert took >= 1.5 * live.EVERY, (looks, began)
    for thread in threads:
        thread.join(20)


def test_a_stream_ends_by_itself_and_the_poller_with_the_last(resting, opened, monkeypatch):
    monkeypatch.setattr(live, "LASTS", 1.0)
    browser = opened(resting)
    began = time.monotonic()
    with browser.stream("GET", "/live") as stream:
        list(stream.iter_raw())
    assert 0.5 < time.monotonic() - began < 5
    ours = live.Live._look
    looks = []
    monkeypatch.setattr(live.Live, "_look", lambda self, topics: looks.append(1) or ours(self, topics))
    time.sleep(3 * live.EVERY)
    so_far = len(looks)
    time.sleep(3 * live.EVERY)
    assert len(looks) == so_far


def test_there_are_only_so_many_streams(resting, opened, monkeypatch):
    monkeypatch.setattr(live, "MOST", 1)
    browser = opened(resting)
    with browser.stream("GET", "/live") as stream:
        parts = stream.iter_raw()
        next(parts)
        assert browser.get("/live").status_code == 503
        assert browser.get("/").status_code == 200
