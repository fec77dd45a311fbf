"""The same job of each second, under every server: one run per due time, in the processes that serve and in no
others."""

import json
import sys
from datetime import datetime
from pathlib import Path
from typing import Any

import httpx

from ext.served import Served, accepts, once_each
from harness.processes import Worker
from harness.scratch import eventually


def flask_reloader(folder: Path, url: str, runs: int = 2) -> int:
    """`flask --debug run`, its program changed, and another command beside it."""
    command = ["--app", "flask_app", "--debug", "run", "--port", "{port}"]
    with Served(folder, url, "flask_app.py", "flask", *command) as served:
        served.wait_for(runs)
        assert json.loads(served.run("flask", "--app", "flask_app", "look")) == {"started": False}
        served.touch()
        served.wait_for(runs)
        assert served.worker.pid not in served.pids(), "the reloader itself ran jobs"
        assert {line["app"] for line in served.lines()} == {"flask_app"}
    return once_each(served)


def flask_alone(folder: Path, url: str, runs: int = 2) -> int:
    """`python flask_app.py`, which calls `app.run()`."""
    with Served(folder, url, "flask_app.py", "flask_app.py") as served:
        served.wait_for(runs)
        assert served.pids() == {served.worker.pid}
    return once_each(served)


def gunicorn(folder: Path, url: str, *options: str, runs: int = 4) -> int:
    """Three workers, without or with `--preload`."""
    command = ["flask_app:create_app()", "-w", "3", "-b", "127.0.0.1:{port}", *options]
    with Served(folder, url, "flask_app.py", "gunicorn", *command) as served:
        served.wait_for(runs)
        eventually(lambda: _ask(served)["started"], within=10)
        assert served.worker.pid not in served.pids(), "the master ran jobs"
    return once_each(served)


def gevent_too_late(folder: Path, url: str) -> int:
    """`--preload` without a patch before it: serves, runs nothing, and says why."""
    command = ["flask_app:create_app()", "-k", "gevent", "--preload", "-b", "127.0.0.1:{port}"]
    with Served(folder, url, "flask_app.py", "gunicorn", *command) as served:
        said = served.worker.errors
        eventually(lambda: any("gevent replaced threads" in line for line in said), within=20, what="the refusal")
        assert _ask(served)["started"] is False
    return len(served.lines())


def uwsgi(folder: Path, url: str, runs: int = 4) -> int:
    """Three processes of uWSGI, each of which begins with its first request."""
    command = ["--http-socket", "127.0.0.1:{port}", "--module", "flask_app:create_app()", "--processes", "3"]
    served = Served(folder, url, "flask_app.py", "uwsgi", *command, "--master", "--enable-threads", "--die-on-term")
    served.worker.command[:3] = [str(Path(sys.executable).with_name("uwsgi"))]
    with served:
        eventually(lambda: accepts(served.port), within=20, what="uwsgi")
        asked = set[int]()
        eventually(lambda: asked.add(_ask(served)["pid"]) or len(asked) == 3, within=20, what="three processes")
        served.wait_for(runs)
        assert served.worker.pid not in served.pids(), "the master ran jobs"
    return once_each(served)


def django_command(folder: Path, url: str, runs: int = 2) -> int:
    """`manage.py tenure start`, twice, beside other verbs; each run and its sale committed together."""
    with _migrated(Served(folder, url, "django_site", "manage.py", "tenure", "start", TENURE_URL="")) as served:
        served.wait_for(runs)
        other = Worker(served.folder / "manage.py", "tenure", "start", env=served.env).start()
        eventually(lambda: any("started" in line for line in other.errors), within=20, what="the second node")
        served.wait_for(runs)
        assert other.terminate() == 0, other.story()
        assert {line["zone"] for line in served.lines()} == {"Asia/Seoul"}
        listed = json.loads(served.run("manage.py", "tenure", "runs", "tick", "--state", "succeeded", "--json"))
        sold = json.loads(served.run("manage.py", "shell", "-v0", "-c", SOLD))
    assert len(sold) == len(set(sold)), "a sale was made twice"
    assert {line["due"] for line in served.lines()} >= set(sold)
    assert {datetime.fromisoformat(run["scheduled_for"]).timestamp() for run in listed} <= set(sold)
    return once_each(served)


def _migrated(served: Served) -> Served:
    served.run("manage.py", "migrate", "--run-syncdb")
    return served


SOLD = "import json; from shop.models import Sale; print(json.dumps(list(Sale.objects.values_list('due', flat=True))))"


def django_reloader(folder: Path, url: str, runs: int = 2) -> int:
    """`manage.py runserver`, its jobs changed, and another command beside it."""
    command = ["runserver", "127.0.0.1:{port}"]
    with _migrated(Served(folder, url, "django_site", "manage.py", *command, SERVE="1", TENURE_URL="")) as served:
        served.wait_for(runs)
        served.touch()
        served.wait_for(runs)
        eventually(lambda: _ask(served)["started"], within=10)
        assert served.worker.pid not in served.pids(), "the reloader itself ran jobs"
        shell = served.run(
            "manage.py", "shell", "-v0", "-c", "from tenure.ext.django import scheduler as s; print(s.started)"
        )
        assert shell == "False"
    return once_each(served)


def django_gunicorn(folder: Path, url: str, *options: str, runs: int = 4) -> int:
    """Three workers, without or with `--preload`."""
    command = ["wsgi", "-w", "3", "-b", "127.0.0.1:{port}", *options]
    with _migrated(Served(folder, url, "django_site", "gunicorn", *command, SERVE="1", TENURE_URL="")) as served:
        served.wait_for(runs)
        eventually(lambda: _ask(served)["started"], within=10)
        assert served.worker.pid not in served.pids(), "the master ran jobs"
    return once_each(served)


def uvicorn_workers(folder: Path, url: str, runs: int = 4, workers: int = 2) -> int:
    """Some workers, and a request that asks one of them for a run."""
    command = ["fastapi_app:app", "--workers", str(workers), "--port", "{port}"]
    with Served(folder, url, "fastapi_app.py", "uvicorn", *command) as served:
        served.wait_for(runs)
        assert isinstance(_ask(served, "jobs/asked/runs", "POST")["run"], int)
        eventually(lambda: any(line["job"] == "asked" for line in served.lines(all_=True)), within=10)
    return once_each(served)


def uvicorn_under_gunicorn(folder: Path, url: str, *options: str, runs: int = 4) -> int:
    """gunicorn with three of uvicorn's workers, without or with `--preload`."""
    command = ["fastapi_app:app", "-w", "3", "-k", "uvicorn_worker.UvicornWorker", "-b", "127.0.0.1:{port}", *options]
    with Served(folder, url, "fastapi_app.py", "gunicorn", *command) as served:
        served.wait_for(runs)
        assert served.worker.pid not in served.pids(), "the master ran jobs"
    return once_each(served)


def uvicorn_reload(folder: Path, url: str, runs: int = 2) -> int:
    """`--reload`, and the program changed."""
    command = ["fastapi_app:app", "--reload", "--reload-dir", str(folder / "project"), "--port", "{port}"]
    with Served(folder, url, "fastapi_app.py", "uvicorn", *command) as served:
        served.wait_for(runs)
        served.touch()
        served.wait_for(runs)
        assert served.worker.pid not in served.pids(), "the reloader itself ran jobs"
    return once_each(served)


def _ask(served: Served, path: str = "", method: str = "GET") -> dict[str, Any]:
    answer: dict[str, Any] = httpx.request(method, f"http://127.0.0.1:{served.port}/{path}", timeout=10).json()
    return answer
