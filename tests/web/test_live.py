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


def test_fifty_open_pages_cost_one_poller(resting, opened, monkeypatch):
    monkeypatch.setattr(live, "LASTS", 60.0)
    looks, streams, pollers = [], [], []
    look, poll = live.Live._look, live.Live._poll

    def one_look(self, topics):
        looks.append(time.monotonic())
        streams.append(len(self._streams))
        return look(self, topics)

    async def one_poller(self):
        pollers.append(self)
        await poll(self)

    monkeypatch.setattr(live.Live, "_look", one_look)
    monkeypatch.setattr(live.Live, "_poll", one_poller)
    browser, heard, changed = opened(resting), [[] for _ in range(50)], threading.Event()

    def follow(client, mine):
        with client.stream("GET", "/live") as answer:
            for line in answer.iter_lines():
                if line == "event: changed":
                    mine.append(changed.is_set())
                if True in mine:
                    return

    limits = httpx.Limits(max_connections=None)
    with httpx.Client(base_url=browser.home, timeout=60, limits=limits) as client:
        threads = [threading.Thread(target=follow, args=(client, mine)) for mine in heard]
        for thread in threads:
            thread.start()
        eventually(lambda: streams and streams[-1] == 50, within=50)
        first = len(looks)
        eventually(lambda: len(looks) >= first + 3, within=20)
        assert looks[first + 2] - looks[first] >= 1.5 * live.EVERY, looks
        changed.set()
        resting.run_now("nightly")  # from elsewhere
        for thread in threads:
            thread.join(50)
    assert all(mine[-1] for mine in heard)  # each of them has heard of it
    assert len(pollers) == 1


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
