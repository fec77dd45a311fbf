"""`tenure web`: where it listens, whom it answers, and how it ends."""

import os
import signal
import subprocess
import sys
import threading
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import httpx
import pytest

from harness.scratch import eventually, free_port
from tenure import Scheduler
from tenure.cli import main

ALL = "0.0.0.0"  # noqa: S104 - to be refused
TOKEN = "correct-horse-battery-staple"


@pytest.fixture
def jobs(sqlite_url):
    """A database with one job."""
    scheduler = Scheduler(sqlite_url, application="shop")

    @scheduler.job()
    def nightly() -> None: ...

    with scheduler:
        pass
    return sqlite_url


@pytest.mark.parametrize("listen", [f"{ALL}:8321", ALL, "[::]:8321", "192.0.2.1:8321", "jobs.example.com:80"])
def test_an_address_that_others_can_reach_needs_a_token(jobs, capsys, monkeypatch, listen):
    monkeypatch.delenv("TENURE_WEB_TOKEN", raising=False)
    assert main(["web", "--url", jobs, "--listen", listen]) == 2
    assert "--token-file" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--listen", "everywhere:http"], "Write 127.0.0.1:8321"),
        (["--listen", "127.0.0.1:99999"], "Write 127.0.0.1:8321"),
        (["--token-file", "/nowhere/token"], "cannot be read"),
        (["--listen", ALL, "--token-file", "{short}"], "at least 16"),
        (["--listen", "127.0.0.1:{taken}"], "cannot listen"),
        (["--proxy", "127.0.0.2"], "needs a token"),
        (["--proxy", "proxy.example.com"], "is not an address"),
        (["--proxy", "*"], "is not an address"),
    ],
)
def test_what_is_wrong_is_said(jobs, capsys, tmp_path, words, said):
    import socket

    short = tmp_path / "short"
    short.write_text("short")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        given = [word.format(short=short, taken=taken.getsockname()[1]) for word in words]
        assert main(["web", "--url", jobs, *given]) in {1, 2}
    assert said in capsys.readouterr().err


def _status(address):
    try:
        return httpx.get(address).status_code
    except httpx.TransportError:
        return None


@pytest.mark.parametrize("guarded", [False, True])
def test_it_serves_until_it_is_told_to_end(jobs, tmp_path, guarded):
    token, port = tmp_path / "token", free_port()
    token.write_text(f"{TOKEN}\n")
    command = [sys.executable, "-m", "tenure", "web", "--url", jobs, "--listen", str(port), "--by", "ann"]
    command += ["--token-file", str(token)] if guarded else []
    environment = {name: value for name, value in os.environ.items() if name != "TENURE_WEB_TOKEN"}
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment) as process:
        base = f"http://127.0.0.1:{port}"

        eventually(lambda: _status(f"{base}/log-in"), within=30)
        bearer = {"Authorization": f"Bearer {TOKEN}"} if guarded else {}
        assert httpx.get(f"{base}/").status_code == (303 if guarded else 200)
        assert httpx.get(f"{base}/api/v1/jobs", headers=bearer).json()[0]["name"] == "nightly"
        assert httpx.get(f"{base}/api/v1/jobs", headers={**bearer, "Host": "evil.example"}).status_code == (
            200 if guarded else 403
        )
        assert "nightly" in httpx.get(f"{base}/", headers=bearer).text
        with httpx.stream("GET", f"{base}/live", headers=bearer):  # an open page does not hold it up
            process.send_signal(signal.SIGTERM)
            assert process.wait(10) in {0, -signal.SIGTERM}
        said = process.stderr.read()
    assert base in said
    assert "Traceback" not in said
    assert TOKEN not in said


class TlsProxy(BaseHTTPRequestHandler):
    """Passes requests on from another address, and says that they came by https, as a proxy with TLS does."""

    upstream = 0

    def do_GET(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        upstream = HTTPConnection("127.0.0.1", self.upstream, timeout=10, source_address=("127.0.0.2", 0))
        headers = {**self.headers, "X-Forwarded-Proto": "https", "X-Forwarded-For": self.client_address[0]}
        upstream.request(self.command, self.path, body, headers)
        answer = upstream.getresponse()
        self.send_response(answer.status)
        for name, value in answer.getheaders():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(answer.read())
        upstream.close()

    do_POST = do_GET  # noqa: N815 - what the class calls

    def log_message(self, *_args):
        return


@pytest.mark.parametrize("named", [False, True])
def test_a_proxy_on_another_machine_is_believed_if_it_is_named(jobs, tmp_path, named):
    token, port = tmp_path / "token", free_port()
    token.write_text(TOKEN)
    command = [sys.executable, "-m", "tenure", "web", "--url", jobs, "--listen", str(port), "--token-file", str(token)]
    command += ["--proxy", "127.0.0.2"] if named else []
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            eventually(lambda: _status(f"http://127.0.0.1:{port}/log-in"), within=30)
            with ThreadingHTTPServer(("127.0.0.1", 0), type("Proxy", (TlsProxy,), {"upstream": port})) as proxy:
                threading.Thread(target=proxy.serve_forever, args=(0.05,), daemon=True).start()
                with httpx.Client(base_url=f"http://127.0.0.1:{proxy.server_port}") as browser:
                    browser.headers.update({"Host": "jobs.example.com", "Origin": "https://jobs.example.com"})
                    answer = browser.post("/log-in", data={"token": TOKEN})
                    assert answer.status_code == (303 if named else 403)
                    if named:
                        cookie = answer.headers["set-cookie"]
                        assert cookie.startswith("__Host-tenure-443=")
                        assert "Secure" in cookie
                        sent = {"Cookie": cookie.partition(";")[0]}
                        done = browser.post("/do/run-now", data={"job": "nightly"}, headers=sent)
                        assert done.headers["location"].startswith("/run/")
                    else:
                        assert "https://jobs.example.com" in answer.text  # where it comes from
                proxy.shutdown()
        finally:
            process.terminate()
