"""The tutorials are typed in, from the first line to the last: real commands in real terminals, on SQLite.

A Python block names its file in its first line; `# app.py, continued` appends. A console block has the prompts of
numbered terminals, `2^C` for Ctrl-C, `2:` for a look at a terminal, and what is then seen: its shape is compared, not its numbers. `…` stands for
lines, or for the rest of a line, that are left out.
"""

import itertools
import os
import pty
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.scratch import eventually

DOCS = Path(__file__).parents[2] / "docs"
WITHIN = 60.0
BLOCK = re.compile(r"^```(python|console)\n(.*?)^```", re.DOTALL | re.MULTILINE)
TYPED = re.compile(r"(\d)(?:\$ (.+)|(\^C|:))")
ASKS = re.compile(r"tenure (status|jobs|runs|log|why|audit|nodes|leader|terms)\b")
"""Commands that can be typed again until they say what they should: a reader is slower than a test."""
LEFT_OUT = "…"
SHAPES = (
    (r"\bterm (\d+)", r"term #\1"),  # which term it is matters
    (r"\b(Mon|Tue|Wed|Thu|Fri|Sat|Sun)\b", "Day"),
    (r"\bCES?T\b", "ZONE"),
    (r"[+-]\d\d:\d\d\b", "+ZONE"),
    (r"\S*/(\w+\.db)", r"\1"),
    (r"[\w.-]+:\d{2,}(?![\d:.])", "NODE"),
    (r"\d{4}-\d\d-\d\d (\d\d:)", r"\1"),
    (r"\d\d:\d\d:\d\d(\.\d+)?", "TIME"),
    (r"(?<!#)\b\d[\d.,]*( (ms|s|min|h|d))?( \d+ (s|min|h))?(?![\w-])", "N"),
    (r"\s+", " "),
)


class Terminal:
    """A terminal with a shell prompt; one program at a time runs in it."""

    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        self._folder, self._environment = folder, environment
        self.process: subprocess.Popen[bytes] | None = None
        self._seen = ""

    @property
    def lines(self) -> list[str]:
        """What the program has written since it was started, or since Ctrl-C."""
        return self._seen.replace("\r", "").splitlines()

    def start(self, command: str) -> None:
        if self.process is not None:
            self.process.wait(WITHIN)  # the text has killed it
        ours, theirs = pty.openpty()
        self._seen = ""
        self.process = subprocess.Popen(
            ["sh", "-c", f"exec {command}"],
            cwd=self._folder,
            env=self._environment,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
        )
        os.close(theirs)
        threading.Thread(target=self._read, args=[ours], daemon=True).start()

    def interrupt(self) -> None:
        """Ctrl-C."""
        assert self.process is not None
        self._seen = ""
        self.process.send_signal(signal.SIGINT)
        self.process.wait(WITHIN)

    def close(self) -> None:
        """End the program if it still runs."""
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait(WITHIN)

    def _read(self, ours: int) -> None:
        while True:
            try:
                text = os.read(ours, 65536)
            except OSError:  # the program has ended
                text = b""
            if not text:
                os.close(ours)
                return
            self._seen += text.decode()


class Reader:
    """Someone who types a tutorial in, and compares what they see."""

    def __init__(self, folder: Path) -> None:
        tools = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        plain = {name: value for name, value in os.environ.items() if not name.startswith("TENURE")}
        self._environment = {**plain, "PATH": tools, "NO_COLOR": "1", "COLUMNS": "140", "PYTHONUNBUFFERED": "1"}
        self._folder = folder
        self.terminals = {name: Terminal(folder, self._environment) for name in "12"}
        self._processes: dict[str, str] = {}
        """The numbers of processes in the text, and the real ones."""

    def write(self, code: str) -> None:
        title, _, rest = code.partition("\n")
        name, _, continued = title.removeprefix("# ").partition(", ")
        assert re.fullmatch(r"\w+\.py", name), f"the block does not say which file it is: {title}"
        assert continued in {"", "continued"}
        file = self._folder / name
        if continued:
            file.write_text(f"{file.read_text()}\n\n{rest}")
        else:
            assert not file.exists(), f"{name} is there already: write '# {name}, continued'"
            file.write_text(rest)

    def type(self, text: str) -> None:
        typed = [*TYPED.finditer(text)] if TYPED.match(text) else []
        assert typed, f"the block does not begin with a prompt: {text}"
        lines = text.splitlines()
        starts = [number for number, line in enumerate(lines) if TYPED.fullmatch(line)] + [len(lines)]
        for begin, end in itertools.pairwise(starts):
            terminal, command, otherwise = TYPED.fullmatch(lines[begin]).groups()
            for shown, real in self._processes.items():
                command = command and re.sub(rf"\b{shown}\b", real, command)
            expected = lines[begin + 1 : end]
            if terminal in self.terminals:
                self._in_terminal(self.terminals[terminal], command or otherwise, expected)
            else:
                self._in_shell(command, expected)

    def _in_terminal(self, terminal: Terminal, command: str, expected: list[str]) -> None:
        if command == "^C":
            terminal.interrupt()
        elif command != ":":
            terminal.start(command)
        soon(lambda: terminal.lines, expected, command, going_on=True)
        number = re.compile(r"\bprocess (\d+)")
        for shown, real in zip(
            number.findall("\n".join(expected)), number.findall("\n".join(terminal.lines)), strict=False
        ):
            self._processes[shown] = real

    def _in_shell(self, command: str, expected: list[str]) -> None:
        if assignment := re.fullmatch(r"export (\w+)=(\S+)", command):
            self._environment[assignment[1]] = assignment[2]
            return
        soon(lambda: self._said(command), expected, command, again=bool(ASKS.match(command)))

    def _said(self, command: str) -> list[str]:
        done = subprocess.run(
            ["sh", "-c", command],
            cwd=self._folder,
            env=self._environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=WITHIN,
        )
        return done.stdout.splitlines()


def soon(
    look: Callable[[], list[str]], expected: list[str], what: str, *, again: bool = True, going_on: bool = False
) -> None:
    """Wait until what is seen fits, or fail with both."""
    seen: list[str] = []

    def right() -> bool:
        seen[:] = look()
        return fits(expected, seen, going_on=going_on)

    try:
        eventually(right, within=WITHIN if again else 0.0)
    except TimeoutError:
        pytest.fail("\n".join([f"{what} shows", *seen, "", "and the page says", *expected]))


def shape(line: str) -> str:
    """A line without what differs from one time to the next."""
    for pattern, instead in SHAPES:
        line = re.sub(pattern, instead, line)
    return line.strip()


def fits(expected: list[str], seen: list[str], *, going_on: bool = False) -> bool:
    """True if these lines have that shape. A program that goes on may write more."""
    wanted, found = [shape(line) for line in expected], [shape(line) for line in seen]
    if not wanted:
        return going_on or not found
    pattern = "".join(
        r"(?:[^\n]*\n)*?" if line == LEFT_OUT else re.escape(line).replace(LEFT_OUT, "[^\n]*") + r"\n"
        for line in wanted
    )
    text = "".join(f"{line}\n" for line in found)
    return bool(re.match(pattern, text) if going_on else re.fullmatch(pattern, text))


@pytest.mark.timeout(240)
@pytest.mark.parametrize("page", ["tutorial.md", "tutorial-election.md"])
def test_a_tutorial_can_be_typed_in_from_the_first_line_to_the_last(page, tmp_path):
    reader = Reader(tmp_path)
    try:
        for kind, text in BLOCK.findall((DOCS / page).read_text()):
            (reader.write if kind == "python" else reader.type)(text)
    finally:
        for terminal in reader.terminals.values():
            terminal.close()


@pytest.mark.parametrize(
    ("expected", "seen", "same"),
    [
        ("run 30 of 'x': succeeded after 1 ms on web:4711", "run 7 of 'x': succeeded after 1.2 s on box-1:99", True),
        ("run 30 of 'x': succeeded after 1 ms on web:4711", "run 7 of 'x': failed after 1.2 s on box-1:99", False),
        ("next Fri 2026-11-20 03:00:00 CET, in 23 h 33 min", "next Mon 2027-06-01 03:00:00 CEST, in 883 ms", True),
        ("6 due times of 2 jobs", "7 due times of 2 jobs, 1 is open", False),
        ("{'pages': 7}", "{'page': 7}", False),
        ("a\n…\nd", "a\nb\nc\nd", True),
        ("a\n…\nd", "a\nb\nc", False),
        ("a\nb", "a\nx\nb", False),
        ("a … c", "a b c", True),
        ("web:4711 has led 'x' for 1.7 s, in term 2", "box:9999 has led 'x' for 12 ms, in term 2", True),
        ("web:4711 has led 'x' for 1.7 s, in term 2", "web:4711 has led 'x' for 1.7 s, in term 3", False),
    ],
)
def test_shapes(expected, seen, same):
    assert fits(expected.splitlines(), seen.splitlines()) is same
