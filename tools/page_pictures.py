"""Takes the pictures of the page for the documentation: `python3 dev.py page-pictures`. Needs Chromium.

A real shop of three workers on SQLite, with a year behind it: once when all is well, and once on a bad night. Each
page is taken light, dark and as on a phone. Look at them before you commit them.
"""

from __future__ import annotations

import math
import shutil
import sqlite3
import sys
import time
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests/support"))

import httpx

from harness import scratch
from harness.processes import Worker, end_all
from harness.scratch import eventually, free_port

ROOT = Path(__file__).resolve().parents[1]
IMAGES = ROOT / "docs/images"
SECOND, DAY = 1_000_000, 86_400_000_000
LOOKS: dict[str, dict[str, Any]] = {
    "light": {"color_scheme": "light", "viewport": {"width": 1280, "height": 900}},
    "dark": {"color_scheme": "dark", "viewport": {"width": 1280, "height": 900}},
    "phone": {"color_scheme": "light", "viewport": {"width": 390, "height": 844}},
}
PERIODS = {
    "sync_stock": 300,
    "import_orders": 300,
    "nightly_report": 86_400,
    "newsletter": 86_400,
    "send_report": 86_400,
    "charge_cards": 600,
}
"""How many seconds lie between two runs of the past."""


def past(path: Path) -> None:
    """Give the jobs a year: days, hours, and the runs that retention would have left."""
    now = int(time.time()) * SECOND
    with closing(sqlite3.connect(path, timeout=30)) as file, file:
        for job, name in file.execute("SELECT id, name FROM tenure_job").fetchall():
            if (period := PERIODS.get(name)) is None:
                continue
            each = max(86_400 // period, 1)
            for day in range(15, 360):
                bad = 1 if (day * 7 + job) % 61 == 0 else 0
                file.execute(
                    "INSERT INTO tenure_job_day VALUES (?, 'shop', ?, ?, ?, 0, 0, 0, 0, ?, ?, '', ?, ?, '')",
                    (job, now // DAY * DAY - day * DAY, each - bad, bad, 3000 * each, 40_000, 200_000 * each, 900_000),
                )
            count = min(14 * 86_400 // period, 400)
            for n in range(count, 0, -1):
                due = now - n * period * SECOND - now % (period * SECOND)
                late = int(3000 + 2500 * math.sin(n / 7) ** 2 + (900_000 if n % 97 == 0 else 0))
                took = int((0.2 + 0.1 * math.sin(n / 11) ** 2 + (1.5 if n % 53 == 0 else 0)) * SECOND)
                state, reason = ("failed", "TimeoutError: marketplace.example") if n % 89 == 5 else ("succeeded", "")
                file.execute(
                    "INSERT OR IGNORE INTO tenure_run (job, application, key, kind, state, generation, scheduled_for, due_at,"
                    " attempt, label, claimed_at, started_at, finished_at, reason)"
                    " VALUES (?, 'shop', ?, 'due', ?, 1, ?, ?, 1, ?, ?, ?, ?, ?)",
                    (
                        job,
                        f"past {n}",
                        state,
                        due,
                        due,
                        f"web-{n % 3}",
                        due + late,
                        due + late,
                        due + late + took,
                        reason,
                    ),
                )


def serve(stack: ExitStack, url: str) -> str:
    """`tenure web` on the application; its address."""
    port = free_port()
    web = Worker("tenure", "web", "--url", url, "--app", "shop", "--listen", f"127.0.0.1:{port}", "--by", "ann").start()
    stack.callback(web.process.terminate)  # type: ignore[union-attr]
    base = f"http://127.0.0.1:{port}"

    def answers() -> bool:
        try:
            return httpx.get(f"{base}/api/v1/status").is_success
        except httpx.TransportError:
            return False

    eventually(answers, within=30)
    return base


def post(base: str, operation: str, **body: Any) -> Any:
    headers = {"Origin": base, "Sec-Fetch-Site": "same-origin"}
    return httpx.post(f"{base}/api/v1/{operation}", json=body, headers=headers).raise_for_status().json()


def pages(base: str) -> dict[str, str]:
    """Every page by the name of its picture."""
    failed = httpx.get(f"{base}/api/v1/runs", params={"state": "failed", "limit": 1}).json()
    running = httpx.get(f"{base}/api/v1/runs", params={"state": "running", "job": "import_orders", "limit": 1}).json()
    return {
        "now": "/",
        "job": "/job?name=import_orders",
        "run": f"/run/{failed[0]['id']}",
        "run-live": f"/run/{running[0]['id']}",
        "terms": "/terms",
        "load": "/load?expr=*/10+*+*+*+*&tz=Europe/Berlin&job=sync_stock",
        "audit": "/audit?since=-1h",
        "actions": "/actions",
    }


def take(base: str, wanted: dict[str, str], suffix: str = "") -> None:
    """Take each page in each look."""
    from playwright.sync_api import sync_playwright

    chromium = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))))
    with sync_playwright() as playwright:
        for look, options in LOOKS.items():
            browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
            page = browser.new_context(base_url=base, reduced_motion="reduce", **options).new_page()
            for name, address in wanted.items():
                page.goto(address)
                page.wait_for_timeout(1200)  # charts draw themselves
                page.screenshot(path=IMAGES / f"page-{name}{suffix}-{look}.png", full_page=look != "phone")
                print(f"page-{name}{suffix}-{look}.png", flush=True)
            browser.close()


def scene(*, broken: bool) -> None:
    with ExitStack() as stack:
        path = scratch.new_folder("pictures") / "shop.db"
        environment = {"TENURE_URL": f"sqlite:///{path}"}
        script = ROOT / "tools/page_scene.py"
        first = Worker(script, "web-0", env=environment).start()
        base = serve(stack, environment["TENURE_URL"])
        eventually(lambda: httpx.get(f"{base}/api/v1/status").json()["planner"], within=30)
        past(path)
        if broken:
            environment["SHOP_BROKEN"] = "1"
        workers = [Worker(script, f"web-{n}", env=environment).start() for n in (1, 2)]
        eventually(lambda: len(httpx.get(f"{base}/api/v1/status").json()["nodes"]) == 3, within=30)
        post(base, "pause", job="newsletter", why="the mail server moves", until="20h")
        post(base, "run-now", job="nightly_report", kwargs={"shards": 2})
        post(base, "run-now", job="import_orders")
        first.process.kill()  # type: ignore[union-attr]
        eventually(lambda: len(httpx.get(f"{base}/api/v1/status").json()["nodes"]) == 2, within=30)
        time.sleep(45 if broken else 25)  # so that there is something to see
        wanted = pages(base)
        take(base, {"now": wanted["now"]} if broken else wanted, "-bad" if broken else "")
        for worker in workers:
            worker.process.terminate()  # type: ignore[union-attr]


def main() -> int:
    IMAGES.mkdir(exist_ok=True)
    try:
        scene(broken=False)
        scene(broken=True)
    finally:
        end_all()
    return 0


if __name__ == "__main__":
    sys.exit(main())
