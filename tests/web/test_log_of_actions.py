"""The page of what people did: newest first, filtered and turned by its address."""

import re

from tenure.web import Caller


def test_who_did_what_why_and_from_where(resting, opened):
    browser = opened(resting, authorize=lambda _request: Caller("ann", "act"))
    assert "No action yet." in browser.get("/actions").text
    browser.press("/do/pause", job="nightly", why="stock <taking>")
    resting.resume("nightly", by="bob", why="done")
    run = resting.run_now("lasts", by="bob")
    page = browser.get("/actions").text
    rows = re.findall(r"<tr data-row>(.*?)</tr>", page)
    assert len(rows) == 3
    assert ">bob<" in rows[0]
    assert f'<a href="/run/{run.id}">run {run.id}</a>' in rows[0]
    assert "stock &lt;taking&gt;" in rows[2]
    assert "web-1" in rows[2]  # from where
    for query, found in {"by=ann": 1, "by=bob": 2, "what=resume": 1, "on=nightly": 2, "on=nightly&by=bob": 1}.items():
        assert browser.get(f"/actions?{query}").text.count("<tr data-row>") == found, query
    assert browser.get("/actions?since=-1h").text.count("<tr data-row>") == 3
    assert "No action matches." in browser.get("/actions?by=eve").text
    assert browser.get("/actions?since=soon").status_code == 400


def test_pages_follow_each_other_without_a_gap_though_actions_come_meanwhile(resting, opened):
    browser = opened(resting)
    for number in range(120):
        resting.pause("nightly", why=f"reason {number:03}", by="ann")
    seen = []
    path = "/actions?by=ann"
    while path:
        page = browser.get(path).text
        seen += re.findall(r"reason (\d{3})", page)
        resting.resume("nightly", by="ann")
        older = re.search(r'href="([^"]+)">Older', page)
        path = older and older[1].replace("&amp;", "&")
    assert seen == [f"{number:03}" for number in range(119, -1, -1)]
