"""The page is closed by default, and each right is asked for where the operation happens."""

import asyncio
import re
import time
from html import unescape
from importlib import resources

import httpx
import pytest
from starlette.applications import Starlette
from starlette.routing import Mount

from harness.web import Browser, served
from tenure.errors import ConfigurationError
from tenure.web import OPERATIONS, Caller, web
from tenure.web.access import caller_of
from tenure.web.headers import ALWAYS
from tenure.web.mounting import stand_alone
from tenure.web.operations import ROUTES
from tenure.web.token_login import LASTS, TRIES, TokenLogin

TOKEN = "correct-horse-battery-staple"
PAGES = ["/", "/job?name=nightly", "/run/1", "/audit", "/live", "/nowhere", "/api/v1/jobs", "/api/v1/status"]
FORMS = {
    "/do/run-now": {"job": "nightly"},
    "/do/pause": {"job": "nightly", "why": "test"},
    "/do/resume": {"job": "nightly"},
    "/do/remove": {"job": "nightly", "typed": "nightly"},
    "/do/restore": {"job": "nightly"},
    "/do/reset": {"job": "nightly"},
    "/do/cancel": {"run": "1"},
    "/do/retry": {"run": "1"},
    "/do/backfill": {"job": "nightly", "since": "-7d"},
    "/do/pause-backfill": {"backfill": "1"},
    "/do/resume-backfill": {"backfill": "1"},
    "/do/cancel-backfill": {"backfill": "1"},
    "/do/resign": {},
}


def test_a_page_without_authorize_answers_403_to_everyone(resting, opened):
    browser = opened(resting, authorize=None)
    css = "/static/0/page.css"
    for path in [*PAGES, css]:
        assert browser.get(path).status_code == 403, path
    for path, fields in FORMS.items():
        assert browser.press(path, **fields).status_code == 403, path
    assert "authorize=" in browser.get("/").text
    assert "shop" not in browser.get("/").text  # not even whose jobs these are
    assert resting.find_job("nightly").state == "active"


def test_every_operation_has_a_form_in_these_tests():
    assert set(FORMS) == set(ROUTES)


def test_every_form_of_a_page_leads_to_an_operation_and_every_operation_has_a_form():
    templates = resources.files("tenure.web").joinpath("templates").iterdir()
    posted = {
        found
        for page in templates
        for form in re.findall(r"<form\b[^>]*\baction=\"[^>]*>", page.read_text(encoding="utf-8"))
        for found in re.findall(r"link\('(/do/[^']+)'\)", form)
    }
    steered = (resources.files("tenure.web") / "templates/backfill.html").read_text(encoding="utf-8")
    posted |= {f"/do/{verb}" for verb in re.findall(r"steer\('([^']+)'", steered)}
    assert posted == set(ROUTES)


@pytest.mark.parametrize("rights", ["read", set()])
def test_who_may_only_read_can_do_nothing(resting, opened, rights):
    browser = opened(resting, authorize=lambda _request: Caller("ann", rights))
    before, runs = resting.find_job("nightly"), resting.runs("nightly")
    for path, fields in FORMS.items():
        assert browser.press(path, **fields).status_code == 403, path
    assert (resting.find_job("nightly"), resting.runs("nightly")) == (before, runs)
    page = browser.get("/job?name=nightly").text
    assert "read only" in page
    assert "<button" not in page.replace("<button>Ask</button>", "")


def test_a_right_to_one_operation_is_no_right_to_another(resting, opened):
    browser = opened(resting, authorize=lambda _request: {"run-now"})
    assert browser.press("/do/run-now", job="nightly").status_code == 303
    assert browser.press("/do/run-now", job="nightly", kwargs='{"password": "mine"}').status_code == 403
    assert browser.press("/do/pause", job="nightly", why="no").status_code == 403
    assert [run.kwargs for run in resting.runs("nightly")] == [None]


def test_a_refused_caller_learns_nothing(resting, opened):
    browser = opened(resting, authorize=lambda _request: None)
    for path in PAGES:
        assert browser.get(path).status_code == 403, path
        assert "shop" not in browser.get(path).text
    assert browser.get("/api/v1/jobs").headers["content-type"] == "application/problem+json"


@pytest.mark.parametrize("answer", [True, 1, "admin", {"run-now", "shutdown"}, object()])
def test_an_answer_that_means_nothing_opens_nothing(resting, opened, caplog, answer):
    browser = opened(resting, authorize=lambda _request: answer)
    for path in ("/", "/api/v1/jobs"):
        answered = browser.get(path)
        assert answered.status_code == 500
        for word in ("sync_stock", "admin", "shutdown", "Caller("):
            assert word not in answered.text
        assert "Return None, 'read', 'act'" in caplog.text  # what is wrong stands in the log
        caplog.clear()


def test_an_error_of_ours_in_authorize_is_logged_and_not_shown(resting, opened, caplog):
    answered = opened(resting, authorize=lambda _request: resting.find_job("of the application")).get("/")
    assert answered.status_code == 500
    assert "of the application" not in answered.text
    assert "of the application" in caplog.text


@pytest.mark.parametrize("mount", ["", "/ops"])
def test_a_websocket_is_closed(resting, mount):
    app = web(resting, authorize=lambda _request: "act")
    if mount:
        app = Starlette(routes=[Mount(mount, app)])
    for path in ("/", "/live", "/nowhere"):
        sent = []

        async def receive():
            return {"type": "websocket.connect"}

        async def send(message, sent=sent):
            sent.append(message["type"])

        scope = {"type": "websocket", "path": mount + path, "root_path": "", "headers": [], "query_string": b""}
        asyncio.run(app(scope, receive, send))
        assert sent == ["websocket.close"]


def test_an_authorize_that_raises_opens_nothing(resting, opened, caplog):
    def authorize(_request):
        raise KeyError("session")

    answered = opened(resting, authorize=authorize).get("/")
    assert answered.status_code == 500
    assert "KeyError" not in answered.text
    assert "KeyError" in caplog.text


def test_authorize_may_be_a_coroutine_function_and_sees_the_request(resting, opened):
    async def authorize(request):
        return Caller("ann", "act") if request.headers.get("x-user") == "ann" else None

    browser = opened(resting, authorize=authorize)
    assert browser.get("/").status_code == 403
    assert browser.get("/", headers={"X-User": "ann"}).status_code == 200


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Sec-Fetch-Site": "same-origin"}, 303),
        ({"Sec-Fetch-Site": "same-site"}, 403),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Sec-Fetch-Site": "none"}, 403),
        ({"Sec-Fetch-Site": "cross-site", "Origin": "{home}"}, 403),
        ({"Origin": "{home}"}, 303),
        ({"Origin": "null"}, 403),
        ({"Origin": "https://evil.example"}, 403),
        ({"Origin": "{home}.evil.example"}, 403),
        ({"Origin": "https://ops.example.com"}, 303),
        ({"Origin": "https://ops.example.com", "Sec-Fetch-Site": "cross-site"}, 303),
        ({}, 403),
        ({"Authorization": "Bearer something"}, 303),
        ({"Authorization": "Basic c29tZXRoaW5n"}, 403),
    ],
)
def test_a_change_comes_from_the_page_itself(resting, opened, headers, status):
    browser = opened(resting, trusted_origins=["https://ops.example.com"])
    sent = {name: value.format(home=browser.home) for name, value in headers.items()}
    assert browser.post("/do/run-now", data={"job": "nightly"}, headers=sent).status_code == status
    assert len(resting.runs("nightly")) == (1 if status == 303 else 0)


def test_a_change_is_a_post_of_a_form(resting, opened):
    browser = opened(resting)
    same = {"Sec-Fetch-Site": "same-origin"}
    for path in FORMS:
        assert browser.get(path, headers=same).status_code == 405
    assert browser.post("/do/run-now", json={"job": "nightly"}, headers=same).status_code == 415
    assert browser.post("/do/run-now", data={"job": "x" * 300_000}, headers=same).status_code == 413
    assert resting.runs("nightly") == []


def test_every_answer_has_every_header(resting, opened):
    browser = opened(resting)
    css = re.search(r'href="(/static/[^"]+\.css)"', browser.get("/").text)[1]
    answers = [browser.get(path) for path in PAGES if path != "/live"]
    answers += [browser.get(css), browser.get("/favicon.ico"), browser.press("/do/pause", job="nightly")]
    answers += [browser.press("/do/run-now", job="nightly"), browser.get("/do/pause")]
    with browser.stream("GET", "/live") as stream:
        answers.append(stream)
    for answer in answers:
        assert {name: answer.headers.get(name) for name in ALWAYS} == ALWAYS, answer.url
        assert "access-control-allow-origin" not in answer.headers
        stored = answer.headers["cache-control"]
        assert stored == ("public, max-age=31536000, immutable" if "/static/" in str(answer.url) else stored)
        assert "/static/" in str(answer.url) or stored in {"no-store", "private, no-cache"}
    assert "unsafe" not in ALWAYS["content-security-policy"]


# tenure web


@pytest.fixture
def alone(resting):
    """The page as `tenure web` serves it on loopback, without a token."""
    with (
        served(
            stand_alone(resting, login=None, hosts=frozenset({"jobs.internal"}), name="ann", read_only=False)
        ) as base,
        Browser(base) as browser,
    ):
        yield browser


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:8321", "127.0.0.1:80", "[::1]:8321", "jobs.internal"])
def test_it_answers_to_its_own_names(alone, host):
    assert alone.get("/", headers={"Host": host}).status_code == 200


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:8321", "localhost.evil.example", "127.0.0.1.evil.example", "[::2]", ""]
)
def test_a_name_that_is_not_its_own_is_refused(alone, host):
    for path in PAGES:
        assert alone.get(path, headers={"Host": host}).status_code == 403, path
    form = {"Host": host, "Origin": f"http://{host}", "Sec-Fetch-Site": "same-origin"}
    assert alone.post("/do/pause", data=FORMS["/do/pause"], headers=form).status_code == 403


@pytest.mark.parametrize("header", ["Forwarded", "X-Forwarded-For", "X-Real-IP", "Via"])
def test_without_a_token_it_answers_to_no_proxy(alone, header):
    assert alone.get("/", headers={header: "10.1.2.3"}).status_code == 403


@pytest.fixture
def token_login():
    return TokenLogin(TOKEN)


@pytest.fixture
def guarded(resting, token_login):
    """The page as `tenure web --token-file` serves it."""
    app = stand_alone(resting, login=token_login, hosts=None, name="ann", read_only=False)
    with served(app) as base, Browser(base) as browser:
        yield browser


def test_without_the_token_nothing_is_shown(guarded):
    for path in PAGES:
        answer = guarded.get(path)
        assert answer.status_code in {303, 401}, path
        assert "sync_stock" not in answer.text
    assert guarded.get("/api/v1/jobs").status_code == 401
    assert guarded.get("/").headers["location"] == "/log-in"
    assert guarded.press("/do/pause", job="nightly", why="x").status_code in {303, 401}
    assert "shop" not in guarded.get("/log-in").text


def test_the_token_becomes_a_strict_cookie_and_stands_in_no_address(guarded):
    answer = guarded.press("/log-in", token=TOKEN)
    assert (answer.status_code, answer.headers["location"]) == (303, "/")
    cookie = answer.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=strict" in cookie
    assert TOKEN not in cookie
    assert guarded.get("/").status_code == 200
    assert guarded.press("/do/run-now", job="nightly").status_code == 303
    assert guarded.get(f"/?token={TOKEN}", headers={"Cookie": ""}).status_code == 303
    out = guarded.press("/log-out")
    assert "Max-Age=0" in out.headers["set-cookie"]
    assert guarded.get("/").status_code == 303


def test_over_https_the_cookie_is_bound_to_the_host(resting, token_login):
    app = stand_alone(resting, login=token_login, hosts=None, name="ann", read_only=False)

    async def behind_tls(scope, receive, send):
        await app(scope | ({"scheme": "https"} if scope["type"] == "http" else {}), receive, send)

    with served(behind_tls) as base:
        sent = {"Origin": base.replace("http", "https")}
        cookie = httpx.post(f"{base}/log-in", data={"token": TOKEN}, headers=sent).headers["set-cookie"]
    assert cookie.startswith("__Host-tenure")
    assert "Secure" in cookie
    assert "Path=/;" in cookie
    assert "Domain" not in cookie


def test_a_wrong_token_a_forged_cookie_and_an_old_one_are_refused(guarded, monkeypatch):
    assert guarded.press("/log-in", token="wrong").status_code == 403
    assert "set-cookie" not in guarded.press("/log-in", token="").headers
    guarded.press("/log-in", token=TOKEN)
    [(name, good)] = guarded.cookies.items()
    expires, _, sign = good.partition(".")
    guarded.cookies.clear()
    forged = [
        f"{int(expires) + 1}.{sign}",
        f"{expires}.{'0' * 64}",
        f"{expires}.",
        expires,
        f"²{expires}.{sign}",
        "x" * 5000,
        "",
    ]
    for cookie in forged:
        assert guarded.get("/", headers={"Cookie": f"{name}={cookie}".encode()}).status_code == 303, cookie
    assert guarded.get("/", headers={"Cookie": f"{name}={good}"}).status_code == 200
    later = time.time() + LASTS + 1
    monkeypatch.setattr("tenure.web.token_login.walltime", lambda: __import__("datetime").datetime.fromtimestamp(later))
    assert guarded.get("/", headers={"Cookie": f"{name}={good}"}).status_code == 303


def test_log_ins_are_limited_and_a_login_comes_from_the_page(guarded, token_login):
    assert guarded.post("/log-in", data={"token": TOKEN}, headers={"Origin": "https://evil.example"}).status_code == 403
    for _ in range(TRIES):
        assert guarded.press("/log-in", token="guess").status_code == 403
    assert guarded.press("/log-in", token="guess").status_code == 429
    assert token_login.note_wrong()
    assert guarded.press("/log-in", token=TOKEN).status_code == 303


def test_wrong_tokens_of_others_lock_none_out(guarded):
    stale = {"Authorization": "Bearer of-last-year-or-of-another"}
    for _ in range(TRIES + 1):
        assert guarded.get("/api/v1/jobs", headers=stale).status_code == 401
        guarded.press("/log-in", token="guess")
    assert guarded.get("/api/v1/jobs", headers={"Authorization": f"Bearer {TOKEN}"}).status_code == 200
    assert guarded.press("/log-in", token=TOKEN).status_code == 303
    assert guarded.get("/api/v1/jobs", headers=stale).status_code == 200  # the cookie counts, the other is not ours


@pytest.mark.parametrize("mount", ["", "/ops/tenure"])
def test_a_log_in_leads_to_where_one_wanted_to_go(resting, token_login, mount):
    app = stand_alone(resting, login=token_login, hosts=None, name="ann", read_only=False)
    if mount:
        app = Starlette(routes=[Mount(mount, app)])
    with served(app) as base, Browser(base) as browser:
        wanted = f"{mount}/job?name=a%20%26%20b%2F%E2%80%AE&updates=off"
        form = browser.get(browser.get(wanted).headers["location"])
        [to] = re.findall(r'name="to" value="([^"]*)"', form.text)
        again = browser.press(f"{mount}/log-in", token="wrong", to=unescape(to))
        [to] = re.findall(r'name="to" value="([^"]*)"', again.text)
        assert browser.press(f"{mount}/log-in", token=TOKEN, to=unescape(to)).headers["location"] == wanted
        browser.cookies.clear()
        assert browser.get(f"{mount}/run/7").headers["location"] == f"{mount}/log-in?to=%2Frun%2F7"
        assert browser.press(f"{mount}/do/pause", job="nightly").headers["location"] == f"{mount}/log-in"
        for to in ELSEWHERE:
            assert browser.press(f"{mount}/log-in", token=TOKEN, to=to).headers["location"] == f"{mount}/", to
            assert f"{mount}/log-in" == browser.get(f"{mount}/log-in", params={"to": to}).url.path
            assert 'name="to" value="/"' in browser.get(f"{mount}/log-in", params={"to": to}).text, to


ELSEWHERE = [
    "https://evil.example/", "//evil.example", "///evil.example", "/\\evil.example", "\\evil.example", "evil", "", "javascript:alert(1)",
    "/../other", "/%2e%2e/other", "/run/../../other", "/run//evil.example", "/run/", "\t//evil.example", "/log-in", "/log-out",
    "/live", "/do/pause", "/api/v1/jobs", "/static/0/page.css", "/\r\nSet-Cookie: a=b", "/nowhere", "?x=//evil.example",
]  # fmt: skip


def test_programs_send_the_token_as_a_bearer(guarded):
    bearer = {"Authorization": f"Bearer {TOKEN}"}
    assert guarded.get("/api/v1/jobs", headers=bearer).status_code == 200
    assert guarded.get("/api/v1/jobs", headers={"Authorization": "Bearer wrong-wrong-wrong"}).status_code == 401
    assert guarded.post("/do/run-now", data={"job": "nightly"}, headers=bearer).status_code == 303


def test_a_read_only_page_reads_only(resting, token_login):
    with (
        served(stand_alone(resting, login=None, hosts=None, name="ann", read_only=True)) as base,
        Browser(base) as browser,
    ):
        for path, fields in FORMS.items():
            assert browser.press(path, **fields).status_code == 403, path


@pytest.mark.parametrize("token", ["", "short", "with spaces in the middle of it", "line\nbreaks-are-not-for-tokens"])
def test_a_token_that_protects_nothing_is_refused(token):
    with pytest.raises(ConfigurationError, match="write at least 16"):
        TokenLogin(token)


def test_what_authorize_returns_is_checked():
    assert caller_of("act").may("remove")
    assert not caller_of("read").may("remove")
    assert caller_of({"pause"}).may("pause")
    assert not caller_of({"pause"}).may("resume")
    assert caller_of(None) is None
    assert Caller("ann", OPERATIONS).may("resign")
    for wrong in (True, 7, "everything", {"pause", "fly"}):
        with pytest.raises(ConfigurationError, match="authorize"):
            caller_of(wrong)
    with pytest.raises(ConfigurationError, match="name"):
        Caller("x" * 300)


def test_what_is_given_to_web_is_checked(resting):
    for wrong in ("act", True):
        with pytest.raises(ConfigurationError, match="Give a function"):
            web(resting, authorize=wrong)
    with pytest.raises(ConfigurationError, match="Give it a Scheduler"):
        web("sqlite:///jobs.db")
    for origin in ("https://ops.example.com/", "ops.example.com", "ftp://x"):
        with pytest.raises(ConfigurationError, match="is no origin"):
            web(resting, trusted_origins=[origin])
    with pytest.raises(ConfigurationError, match="is a text"):
        web(resting, trusted_origins="https://ops.example.com")
