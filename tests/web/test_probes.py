"""`/livez` and `/readyz` of the page: they need no rights and no name, and show nothing."""

import httpx
import pytest

from harness.web import served, served_wsgi
from tenure.web import web, web_wsgi
from tenure.web.mounting import stand_alone
from tenure.web.token_login import TokenLogin


def answers(base, **headers):
    found = [httpx.get(f"{base}/{path}", headers=headers, timeout=20) for path in ("livez", "readyz")]
    assert {answer.text for answer in found} <= {"live\n", "ready\n", "not ready\n"}
    assert all(answer.headers["cache-control"] == "no-store" for answer in found)
    return [answer.status_code for answer in found]


def refuses(_request):
    raise AssertionError("a probe must not ask who it is")


@pytest.mark.parametrize("authorize", [None, refuses], ids=["closed", "asks"])
@pytest.mark.parametrize("kind", ["ASGI", "WSGI"])
def test_a_mounted_page_answers_probes_and_nothing_else_without_rights(scheduler, kind, authorize):
    page = (web if kind == "ASGI" else web_wsgi)(scheduler, authorize=authorize)
    with (served if kind == "ASGI" else served_wsgi)(page) as base:
        assert answers(base) == [200, 200]
        assert httpx.head(f"{base}/livez").status_code == 200
        assert httpx.post(f"{base}/livez").status_code != 200
        if authorize is None:
            assert httpx.get(f"{base}/", timeout=20).status_code == 403
        scheduler.stop()
        assert answers(base) == [200, 503]


@pytest.mark.parametrize("token", [None, "correct-horse-battery-staple"])
def test_the_page_alone_answers_probes_under_any_name_and_through_a_proxy(resting, token):
    login = None if token is None else TokenLogin(token)
    page = stand_alone(resting, login=login, hosts=frozenset({"127.0.0.1"}), name="ann", read_only=True)
    with served(page) as base:
        assert answers(base, Host="10.0.0.7:8321", **{"X-Forwarded-For": "10.0.0.9"}) == [200, 503]
        assert httpx.get(f"{base}/", headers={"Host": "10.0.0.7:8321"}).status_code == 403
