"""The page inside applications of other frameworks, under ASGI and WSGI."""

import http.client
import logging
import os

import httpx
import pytest
from fastapi import FastAPI
from flask import Flask
from starlette.middleware.sessions import SessionMiddleware  # noqa: F401 - what users have beside it
from werkzeug.middleware.dispatcher import DispatcherMiddleware

from harness.scratch import eventually
from harness.web import Browser, served, served_wsgi
from tenure.errors import ConfigurationError
from tenure.web import Caller, web, web_wsgi


def staff(request):
    return Caller("ann", "act") if request.headers.get("x-user") == "ann" else None


def by_environ(environ):
    return Caller("ann", "act") if environ.get("HTTP_X_USER") == "ann" else None


def in_fastapi(scheduler, **options):
    app = FastAPI()
    app.mount("/ops/tenure", web(scheduler, **options))

    @app.get("/hello")
    def hello():
        return "world"

    return served(app)


def in_flask(scheduler, **options):
    app = Flask("shop")
    app.wsgi_app = DispatcherMiddleware(app.wsgi_app, {"/ops/tenure": web_wsgi(scheduler, **options)})

    @app.get("/hello")
    def hello():
        return "world"

    return served_wsgi(app)


MOUNTS = {"fastapi": (in_fastapi, staff), "flask": (in_flask, by_environ)}


@pytest.mark.parametrize("mount", MOUNTS)
def test_it_works_below_a_path_of_another_application(resting, mount):
    mounted, authorize = MOUNTS[mount]
    with mounted(resting, authorize=authorize) as base, Browser(base, headers={"X-User": "ann"}) as browser:
        assert "world" in browser.get("/hello").text
        assert browser.get("/ops/tenure", follow_redirects=True).status_code == 200
        page = browser.get("/ops/tenure/")
        assert page.status_code == 200
        links = set(__import__("re").findall(r'(?:href|src|action|hx-get|hx-sse:connect)="([^"]+)"', page.text))
        assert {link for link in links if not link.startswith(("/ops/tenure/", "#"))} == set()
        for link in sorted(links - {"#main", "#keys", "/ops/tenure/live", "/ops/tenure/do/resign"}):
            assert browser.get(link.replace("&amp;", "&")).status_code == 200, link
        answer = browser.press("/ops/tenure/do/pause", job="nightly", why="test")
        assert answer.headers["location"].startswith("/ops/tenure/job?name=nightly")
        assert browser.get(answer.headers["location"]).status_code == 200
        assert browser.get("/ops/tenure/api/v1/job?name=nope").headers["content-type"] == "application/problem+json"
    assert resting.find_job("nightly").paused_by == "ann"


@pytest.mark.parametrize("mount", MOUNTS)
def test_a_mount_without_authorize_is_closed_and_one_with_it_lets_in_whom_it_says(resting, mount):
    mounted, authorize = MOUNTS[mount]
    with mounted(resting) as base, Browser(base, headers={"X-User": "ann"}) as browser:
        assert browser.get("/ops/tenure/").status_code == 403
        assert browser.press("/ops/tenure/do/run-now", job="nightly").status_code == 403
    with mounted(resting, authorize=authorize) as base, Browser(base) as browser:
        assert browser.get("/ops/tenure/").status_code == 403
        assert browser.press("/ops/tenure/do/run-now", job="nightly").status_code == 403
    assert resting.runs("nightly") == []


def test_under_wsgi_pages_ask_by_themselves_and_keep_no_stream_open(resting):
    with in_flask(resting, authorize=lambda _environ: "read") as base, Browser(base) as browser:
        page = browser.get("/ops/tenure/").text
        assert 'hx-trigger="every 5s"' in page
        assert "hx-sse:connect" not in page
        assert browser.get("/ops/tenure/live").status_code == 503


def test_an_authorize_of_wsgi_that_raises_opens_nothing(resting):
    def authorize(_environ):
        raise KeyError("session")

    logging.getLogger("shop").disabled = True
    app = web_wsgi(resting, authorize=authorize)
    with pytest.raises(KeyError):
        app({"PATH_INFO": "/", "REQUEST_METHOD": "GET"}, lambda *_: None)
    with pytest.raises(ConfigurationError):
        web_wsgi(resting, authorize=lambda _environ: True)({"PATH_INFO": "/"}, lambda *_: None)


def test_an_address_that_is_not_utf_8_is_refused_under_wsgi(resting):
    with in_flask(resting, authorize=lambda _environ: "read") as base:
        connection = http.client.HTTPConnection(base.removeprefix("http://"), timeout=10)
        connection.request("GET", "/ops/tenure/%ff")
        assert connection.getresponse().status == 400
        connection.close()


def test_a_forked_worker_serves_the_page(resting, tmp_path):
    """As under gunicorn --preload: the application is made before the fork, and threads do not survive one."""
    app = web_wsgi(resting, authorize=lambda _environ: "read")
    with served_wsgi(app) as base:
        assert httpx.get(base).status_code == 200
    said = tmp_path / "said"
    if (child := os.fork()) == 0:
        code = 1
        try:
            status = []
            environ = {
                "REQUEST_METHOD": "GET", "SCRIPT_NAME": "", "PATH_INFO": "/", "QUERY_STRING": "", "SERVER_NAME": "x",
                "SERVER_PORT": "80", "SERVER_PROTOCOL": "HTTP/1.1", "wsgi.url_scheme": "http", "wsgi.input": None,
            }  # fmt: skip
            body = b"".join(app(environ, lambda line, *_: status.append(line)))
            said.write_text(f"{status} {b'nightly' in body}")
            code = 0
        finally:
            os._exit(code)
    os.waitpid(child, 0)
    eventually(said.exists)
    assert said.read_text() == "['200 OK'] True"
