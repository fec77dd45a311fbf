"""The command line as its users meet it: answers, exit codes, JSON, one clear message when something is wrong."""

import json
import os
import pty
import re
import shutil
import sqlite3
import subprocess
import sys
import threading
import time

import psycopg
import pytest

from harness.scratch import eventually
from tenure import Election, Scheduler
from tenure.cli import main
from tenure.stores import store_for


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch):
    for name in ("TENURE_URL", "TENURE_SCHEMA", "TENURE_DEBUG"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def empty_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_who_leads(tenure, url):
    with Election(url, "mail", label="first") as election:
        assert election.wait_until_leading("10s")
        code, out, _ = tenure("leader", "mail")
        assert code == 0
        assert re.fullmatch(r"first has led 'mail' for [\d.]+ m?s, in term 1\n", out)
        code, out, _ = tenure("leader", "mail", "--json")
        found = json.loads(out)
        assert (code, found["election"], found["term"], found["label"], found["healthy"]) == (
            0,
            "mail",
            1,
            "first",
            True,
        )
        code, out, _ = tenure("elections")
        assert code == 0
        assert re.search(r"^mail +1 +first +\d{4}-\d\d-\d\d \d\d:\d\d:\d\d +healthy$", out, re.MULTILINE)
        assert json.loads(tenure("elections", "--json")[1])[0]["label"] == "first"
    assert tenure("leader", "mail")[:2] == (1, "no node leads 'mail'\n")
    assert tenure("leader", "mail", "--json")[:2] == (1, "null\n")
    assert tenure("elections")[:2] == (0, "no election has a leader\n")


def test_the_history_of_terms(tenure, url):
    assert Election(url, "mail").history() == []  # creates the tables
    assert tenure("terms")[:2] == (0, "no terms yet\n")
    for label in ("first", "second"):
        with Election(url, "mail", label=label) as election:
            assert election.wait_until_leading("10s")
    code, out, _ = tenure("terms", "mail")
    header, newest, oldest = out.splitlines()
    assert (code, header.split()) == (0, ["term", "who", "from", "until", "began", "by", "ended", "by", "gap"])
    assert re.match(r"2 +second .* released +.*m?s$", newest)
    assert re.match(r"1 +first .* first ", oldest)
    assert tenure("terms")[1].splitlines()[0].startswith("election")
    [record] = json.loads(tenure("terms", "mail", "--limit", "1", "--json")[1])
    assert (record["number"], record["label"], record["began_by"]) == (2, "second", "released")
    assert record["gap"] >= 0


def test_asking_the_leader_to_resign(tenure, url):
    Election(url, "mail").history()
    assert tenure("resign", "mail")[:2] == (1, "no node leads 'mail'\n")
    with Election(url, "mail", label="first", ttl="5s") as first:
        assert first.wait_until_leading("10s")
        with Election(url, "mail", label="second", ttl="5s"):
            code, out, err = tenure("resign", "mail", "--wait", "20s")
            assert code == 0
            assert re.fullmatch(r"after .*, second leads 'mail' in term 2\n", out)
            assert "asked first to resign term 1" in err
            code, out, _ = tenure("resign", "mail", "--json")
            assert (code, json.loads(out)["asked_term"]) == (0, 2)


def test_work_that_does_not_stop_is_said(tenure, url):
    with Election(url, "mail", label="first") as election:
        terms = election.terms()
        next(terms)
        code, out, _ = tenure("resign", "mail", "--wait", "500ms")
        assert code == 1
        assert re.fullmatch(r"after .*, first still leads 'mail' in term 1: its work has not stopped yet\n", out)
        terms.close()


def test_migrating_by_hand(tenure, url, sqlite_url):
    code, script, _ = tenure("migrate", "--print")
    assert code == 0
    apply(url, script)
    store_for(url, migrate=False).prepare()
    with Election(url, "mail", migrate=False) as election:
        assert election.wait_until_leading("10s")
    code, out, _ = tenure("migrate")
    assert (code, "are up to date" in out) == (0, True)
    assert tenure("epoch")[:2] == (0, "epoch 0, settled\n")


def test_looking_creates_nothing(tenure, url, tmp_path):
    for verb in (["leader", "mail"], ["terms"], ["elections"], ["epoch"], ["resign", "mail"]):
        code, out, err = tenure(*verb)
        assert (code, out) == (4, "")
        assert "tenure migrate" in err
        assert len(err.splitlines()) == 1
    assert list(tmp_path.iterdir()) == []
    if url.startswith("postgresql"):
        with psycopg.connect(url) as connection:
            assert connection.execute("SELECT to_regnamespace('tenure')").fetchone() == (None,)


def test_looking_does_not_change_a_file_of_somebody_else(sqlite_url, tmp_path, capsys):
    with sqlite3.connect(tmp_path / "tenure.db") as connection:
        connection.execute("CREATE TABLE mine (x)")
    connection.close()
    assert main(["terms", "--url", sqlite_url]) == 4
    assert [path.name for path in tmp_path.iterdir()] == ["tenure.db"]
    connection = sqlite3.connect(tmp_path / "tenure.db")
    assert connection.execute("PRAGMA journal_mode").fetchone() == ("delete",)
    connection.close()


def test_raising_the_epoch(tenure, url, capsys):
    assert tenure("migrate")[0] == 0
    table = "tenure.epoch" if url.startswith("postgresql") else "tenure_epoch"
    apply(url, f"UPDATE {table} SET max_ttl = 0.6;")
    answer = []
    raising = threading.Thread(target=lambda: answer.append(main(["epoch", "--url", url, "raise"])))
    began = time.monotonic()
    raising.start()
    eventually(lambda: not epoch(url).settled, what="the change of epoch noticed")
    assert main(["epoch", "--url", url]) == 1  # meanwhile nothing is granted
    raising.join(10)
    assert answer == [0]
    assert time.monotonic() - began > 0.6
    raised = epoch(url)
    assert raised.settled
    assert abs(raised.number - time.time()) < 60
    apply(url, f"UPDATE {table} SET max_ttl = 60;")
    with Election(url, "mail") as election:
        term = election.wait_until_leading("10s")
        assert term
        assert term.number == raised.number << 20
    capsys.readouterr()
    found = json.loads(tenure("epoch", "--json")[1])
    assert (found["number"], found["settled"]) == (raised.number, True)


def test_the_schema_can_be_another(database, capsys):
    words = ["--url", database, "--schema", "elsewhere"]
    assert main(["migrate", *words]) == 0
    assert main(["terms", *words]) == 0
    assert main(["terms", "--url", database]) == 4


def test_the_url_from_the_environment(sqlite_url, monkeypatch, capsys):
    monkeypatch.setenv("TENURE_URL", sqlite_url)
    assert main(["migrate"]) == 0
    assert main(["leader", "mail"]) == 1


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["leader", "x"], 2, "TENURE_URL is not set"),
        (["leader", "x", "--url", "mysql://x"], 2, "'mysql' is not a store that tenure has"),
        (["leader", "x", "--url", "memory://"], 2, "lives inside one process"),
        (["leader", "x", "--url", "postgresql://u:geheim@127.0.0.1:1/x"], 3, "refused"),
        (["leader", "?x", "--url", "sqlite:///x.db"], 2, "election name"),
        (["resign", "x", "--url", "sqlite:///x.db", "--wait", "20"], 2, "'20' has no unit. Write '20s'"),
        (["lead", "x", "--url", "sqlite:///x.db", "--ttl", "90s", "--", "true"], 2, "90 s is more than the 60 s"),
        (["lead", "x", "--url", "sqlite:///x.db", "--grace", "7s", "--", "true"], 2, "does not fit"),
        (["demo", "--seconds", "0"], 2, "must be more than zero"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(words, code, message, capsys, empty_folder):
    assert main(words) == code
    said = capsys.readouterr()
    assert said.out == ""
    assert message in said.err
    assert said.err.startswith("tenure: ")
    assert "Traceback" not in said.err
    assert "geheim" not in said.err
    assert len(said.err.splitlines()) == 1
    assert list(empty_folder.iterdir()) == []


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "COMMAND"),
        (["no-such-command"], "there is no command 'no-such-command'"),
        (["lead", "x", "ls", "-l"], "write the command after '--': tenure lead x -- ls -l"),
        (["lead", "x"], "the command is missing: tenure lead x -- command"),
        (["lead", "x", "--"], "the command is missing"),
        (["lead", "x", "--once", "--forever", "--", "ls"], "not allowed with"),
        (["terms", "--limit", "0"], "0 must be 1 or more"),
        (["terms", "x", "--frobnicate"], "unrecognized arguments: --frobnicate"),
    ],
)
def test_wrong_usage_is_exit_code_2(words, message, capsys):
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 2
    assert message in capsys.readouterr().err


def test_a_bug_is_called_one(monkeypatch, capsys, sqlite_url):
    def broken(*_, **__):
        raise KeyError("surprise")

    monkeypatch.setattr("tenure.cli.elections.store_for", broken)
    assert main(["terms", "--url", sqlite_url]) == 70
    said = capsys.readouterr().err
    assert "unexpected KeyError: 'surprise'" in said
    assert "TENURE_DEBUG=1" in said
    monkeypatch.setenv("TENURE_DEBUG", "1")
    with pytest.raises(KeyError):
        main(["terms", "--url", sqlite_url])


def test_the_doctor_is_at_home(url, capsys):
    assert main(["migrate", "--url", url]) == 0
    capsys.readouterr()
    assert main(["doctor", url, "--json"]) in {0, 1}
    json.loads(capsys.readouterr().out)


def test_every_verb_has_help_with_an_example(capsys):
    with pytest.raises(SystemExit):
        main(["--help"])
    verbs = re.findall(r"^    ([\w-]+)\s", capsys.readouterr().out, re.MULTILINE)
    assert " ".join(verbs) == (
        "start web metrics status jobs show nodes runs log why audit actions alerts load next run-now run-at pause resume remove restore reset cancel retry backfill backfills pool pools check diff lead once import leader terms resign "
        "elections migrate epoch doctor demo completion"
    )
    for verb in verbs:
        with pytest.raises(SystemExit) as ended:
            main([verb, "--help"])
        said = capsys.readouterr().out
        assert ended.value.code == 0
        assert re.search(rf"examples?:\n  .*tenure {verb}", said)
        assert "exit codes:" in said


def test_in_a_narrow_terminal_names_stay_whole_and_every_line_fits(sqlite_url, monkeypatch, capsys):
    scheduler, name = (
        Scheduler(sqlite_url, capacity=0),
        "shop.reminders:remind(9f86d081884c7d65) at 2026-12-31T08:00:00Z",
    )
    scheduler.every("30s", name=name)(print)
    scheduler.start()
    scheduler.run_now(name)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("NO_COLOR", "1")
    for verb, part in {"jobs": "active", "runs": "pending"}.items():
        assert main([verb, "--url", sqlite_url]) == 0
        said = capsys.readouterr().out
        assert name in said
        assert part in said
        assert max(map(len, said.splitlines())) <= 80


def test_colour_on_a_terminal_only_and_never_with_no_color(sqlite_url):
    assert main(["migrate", "--url", sqlite_url]) == 0
    words = [sys.executable, "-m", "tenure", "epoch", "--url", sqlite_url]
    assert "\033[" in on_a_terminal(words, {"TERM": "xterm"})
    assert "\033[" not in on_a_terminal(words, {"TERM": "xterm", "NO_COLOR": "1"})
    assert "\033[" not in on_a_terminal(words, {"TERM": "dumb"})
    assert "\033[" not in subprocess.run(words, capture_output=True, text=True, check=True).stdout


def test_a_reader_that_goes_away_is_no_error(sqlite_url):
    assert main(["migrate", "--url", sqlite_url]) == 0
    command = f"{sys.executable} -m tenure migrate --print --url {sqlite_url} | head -1"
    done = subprocess.run(["bash", "-o", "pipefail", "-c", command], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("tenure le", {"lead", "leader"}),
        ("tenure runs --st", {"--state"}),
        ("tenure completion ", {"bash", "fish", "zsh"}),
        ("tenure epoch r", {"raise"}),
        ("tenure lead x --f", {"--forever"}),
        ("tenure terms --j", {"--json"}),
    ],
)
def test_bash_completes(line, offered, capsys):
    assert main(["completion", "bash"]) == 0
    script = capsys.readouterr().out
    words = line.split(" ")
    ask = f'{script}\nCOMP_WORDS=({" ".join(words[:-1])} "{words[-1]}"); COMP_CWORD={len(words) - 1}; _tenure; printf "%s\\n" "${{COMPREPLY[@]}}"'
    done = subprocess.run(["bash", "-c", ask], capture_output=True, text=True, check=True)
    options = words[-1].startswith("-")
    assert {word for word in done.stdout.split() if word.startswith("-") == options} == offered


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_scripts_are_accepted_by_their_shells(shell, capsys, tmp_path):
    assert main(["completion", shell]) == 0
    script = capsys.readouterr().out
    assert "forever" in script
    if shutil.which(shell):
        (tmp_path / "script").write_text(script)
        subprocess.run([shell, "-n", tmp_path / "script"], check=True)


def apply(url, script):
    if url.startswith("sqlite"):
        connection = sqlite3.connect(url.removeprefix("sqlite:///"))
        connection.executescript(script)
        connection.close()
    else:
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(script.encode())


def epoch(url):
    session = store_for(url).session("test", 2.0)
    try:
        return session.epoch()
    finally:
        session.close()


def on_a_terminal(words, env):
    """What a command prints on a terminal of its own."""
    ours, theirs = pty.openpty()
    clean = {name: value for name, value in os.environ.items() if name not in {"NO_COLOR", "TERM"}}
    with subprocess.Popen(words, stdin=theirs, stdout=theirs, stderr=theirs, env={**clean, **env}) as process:
        os.close(theirs)
        said = b""
        try:
            while chunk := os.read(ours, 4096):
                said += chunk
        except OSError:
            pass
        process.wait()
    os.close(ours)
    return said.decode()
