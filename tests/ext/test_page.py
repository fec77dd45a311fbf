"""The page inside applications of each framework, under the servers that people use: started, clicked, killed.

`make test` runs one server of each kind; `make test-ext page` all of them (TENURE_EXT_SECONDS is set there).
"""

import os
import re
import signal

import httpx
import pytest

from ext.served import Served, accepts
from harness import scratch
from harness.scratch import eventually
from harness.web import Browser
from tenure import Scheduler

UVICORN = ("uvicorn", "page_app:app", "--port", "{port}")
GUNICORN = ("gunicorn", "page_app:app", "-b", "127.0.0.1:{port}", "-w", "2")
GTHREAD = ("-k", "gthread", "--threads", "4")
SERVERS = {
    "fastapi-uvicorn": ("fastapi", (*UVICORN, "--workers", "2")),
    "flask-gunicorn-sync": ("flask", GUNICORN),
    "django-gunicorn-gthread": ("django", (*GUNICORN, *GTHREAD)),
    "django-uvicorn": ("django_asgi", UVICORN),
}
MORE = {
    "fastapi-gunicorn-uvicorn": ("fastapi", (*GUNICORN, "-k", "uvicorn_worker.UvicornWorker")),
    "litestar-uvicorn": ("litestar", UVICORN),
    "flask-gunicorn-gthread": ("flask", (*GUNICORN, *GTHREAD)),
    "flask-gunicorn-preload": ("flask", (*GUNICORN, *GTHREAD, "--preload")),
    "flask-uvicorn": ("flask", (*UVICORN, "--interface", "wsgi")),
    "django-gunicorn-sync": ("django", GUNICORN),
}
STREAMS = {"fastapi", "litestar", "django_asgi"}
"""Where open pages hear of changes at once; elsewhere they ask every few seconds."""


def servers():
    """Those of this environment."""
    for name, (framework, command) in {**SERVERS, **MORE}.items():
        all_ = "TENURE_EXT_SECONDS" in os.environ
        marks = [pytest.mark.skipif(name in MORE and not all_, reason="make test-ext page runs all servers")]
        yield pytest.param(framework, command, id=name, marks=marks)


@pytest.mark.timeout(180)
@pytest.mark.parametrize(("framework", "command"), list(servers()))
def test_the_page_is_served_used_and_survives_the_death_of_a_worker(tmp_path, sqlite_url, framework, command) -> None:
    here = Scheduler(sqlite_url, application="shop", ttl=6, heartbeat_every=0.5, attempt_timeout=1)
    here.job(name="asked")(lambda run: run.log("done"))
    here.every("1s", name="tick")(lambda: None)
    with here, Served(tmp_path, sqlite_url, "page_app.py", *command, FRAMEWORK=framework) as served:
        eventually(lambda: accepts(served.port), within=40, what="the server")
        base = f"http://127.0.0.1:{served.port}"
        with Browser(f"{base}/ops/tenure/", headers={"X-User": "ann"}) as ann, Browser(f"{base}/ops/tenure/") as other:
            eventually(lambda: answers(ann), within=40, what="an answer")
            assert "world" in httpx.get(f"{base}/hello").text
            page = ann.get("").text
            assert "is fine" in page
            for link in re.findall(r'(?:href|src)="(/ops/tenure/static/[^"]+)"', page):
                assert httpx.get(f"{base}{link}").status_code == 200, link
            assert other.get("").status_code == 403
            assert other.press("do/pause", job="tick", why="x").status_code == 403
            assert ("hx-sse:connect" in page) == (framework in STREAMS)
            if framework in STREAMS:
                with ann.stream("GET", "live") as stream:
                    assert "retry" in next(stream.iter_text())
            else:
                assert ann.get("live").status_code == 503

            asked = ann.press("do/run-now", job="asked", key="from the page")
            number = asked.headers["location"].partition("/run/")[2].partition("?")[0]
            assert asked.headers["location"].startswith("/ops/tenure/run/")
            eventually(lambda: ann.get(f"api/v1/runs/{number}").json()["state"] == "succeeded", within=30)
            bearer = {"Authorization": "Bearer x"}
            assert ann.post("api/v1/pause", json={"job": "tick", "why": "stock"}, headers=bearer).status_code == 200
            assert here.find_job("tick").paused_by == "ann"

            killed = kill_a_worker(served)
            eventually(lambda: answers(ann), within=40, what="an answer after the kill")
            assert ann.press("do/resume", job="tick").status_code == 303
            assert here.find_job("tick").state == "active"
            assert killed is None or not scratch.running(killed)
    assert [(action.what, action.by) for action in reversed(here.actions(by="ann"))] == [
        ("run-now", "ann"), ("pause", "ann"), ("resume", "ann")
    ]  # fmt: skip


def answers(browser: Browser) -> bool:
    """Whether a page can be had."""
    try:
        return browser.get("").status_code == 200
    except httpx.TransportError:
        return False


def kill_a_worker(served: Served) -> int | None:
    """kill -9, as the out-of-memory killer does. None if the server has no workers of its own."""
    workers = [pid for pid in scratch.children(served.worker.pid) if b"resource_tracker" not in command_of(pid)]
    if not workers:
        return None
    os.kill(workers[-1], signal.SIGKILL)
    eventually(lambda: not scratch.running(workers[-1]), what="its death")
    return workers[-1]


def command_of(pid: int) -> bytes:
    """The command line of a process."""
    with open(f"/proc/{pid}/cmdline", "rb") as file:  # noqa: PTH123
        return file.read()
