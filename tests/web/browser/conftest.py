"""Real browsers. `make test-web` runs these; the default suite does not, because they need Chromium."""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.processes import Worker
from harness.scratch import free_port

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
ARGUMENTS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
]  # fmt: skip
collect_ignore_glob = [] if os.environ.get("TENURE_TEST_WEB") else ["test_*.py"]
APPLICATION = Path(__file__).with_name("application.py")


@pytest.fixture
def look(tmp_path: Path) -> Iterator[Callable[..., Any]]:
    """Opens a page in a new browser: `look(base, javascript=False)`. What violates the policy fails the test."""
    from playwright.sync_api import sync_playwright

    wrong: list[str] = []
    with sync_playwright() as playwright:
        opened = []

        def look(base: str, *, javascript: bool = True, **options: Any) -> Any:
            browser = playwright.chromium.launch_persistent_context(
                str(tmp_path / f"profile-{len(opened)}"),
                executable_path=CHROMIUM,
                args=ARGUMENTS,
                java_script_enabled=javascript,
                base_url=base,
                **options,
            )
            opened.append(browser)
            page = browser.pages[0]
            page.set_default_timeout(20_000)
            page.on("console", lambda said: "Content Security Policy" in said.text and wrong.append(said.text))
            page.on("pageerror", lambda error: wrong.append(str(error)))
            return page

        yield look
        for browser in opened:
            browser.close()
    assert wrong == []


@pytest.fixture
def workers(sqlite_url: str) -> dict[str, Worker]:
    """Two processes that run the same jobs."""
    started = {label: Worker(APPLICATION, label, env={"TENURE_URL": sqlite_url}) for label in ("web-1", "web-2")}
    for worker in started.values():
        worker.start()
    return started


@pytest.fixture
def page_of(sqlite_url: str) -> Iterator[Callable[..., str]]:
    """Starts `tenure web`: `page_of("--read-only")` is its address."""
    processes = []

    def page_of(*words: str, **environment: str) -> str:
        port = free_port()
        command = [
            sys.executable,
            "-m",
            "tenure",
            "web",
            "--url",
            sqlite_url,
            "--app",
            "shop",
            "--listen",
            str(port),
            *words,
        ]
        processes.append(
            subprocess.Popen(command, env={**os.environ, **environment}, stderr=subprocess.PIPE, text=True)
        )
        base = f"http://127.0.0.1:{port}"
        deadline = time.monotonic() + 30
        import httpx

        while True:
            try:
                httpx.get(f"{base}/")
                return base
            except httpx.TransportError:
                assert time.monotonic() < deadline, "tenure web does not answer"
                time.sleep(0.1)

    yield page_of
    for process in processes:
        process.terminate()
        process.wait(20)
        process.stderr.close()
