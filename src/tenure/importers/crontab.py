"""Imports crontabs, as Debian's cron reads them."""

from __future__ import annotations

import os
import re
import shlex
import shutil
from pathlib import Path, PurePosixPath

from tenure.errors import ConfigurationError
from tenure.importers.found import Found, Imported, Left, Names
from tenure.triggers import Trigger, cron

DIFFERENCES = (
    (
        "cron starts a command on its own host. Here any node starts it, once in the cluster: the command must be on "
        "all of them, or write queue='…' on the job and queues=['…'] on the nodes that have it."
    ),
    (
        "cron starts a command even if the last one is still running. Here the new run is skipped and recorded as "
        "skipped; overlap='allow' is cron's way."
    ),
    (
        "cron forgets what was due while the machine was down. Here the latest missed due time runs late; "
        "missed='skip' is cron's way."
    ),
    (
        "cron mails the output and ignores exit codes. Here an exit code other than 0 is a failed run (retries=, "
        "scheduler.on(RunFailed)), and output goes where the node's output goes."
    ),
    "the command runs with the environment and the user of the node, not with cron's short environment.",
    (
        "cron starts a command in the home directory of the crontab's user (HOME=). Here (cwd=) it starts in that of "
        "the node's user."
    ),
)
_ENVIRONMENT = re.compile(r"""^\s*(\w+)\s*=\s*(?:"([^"]*)"|'([^']*)'|(.*?))\s*$""")
_FOLDER = re.compile(r"^\s*cd\s+[^;&|]+(?:&&|;)\s*")
_BEFORE = {
    "python",
    "python3",
    "bash",
    "sh",
    "php",
    "perl",
    "ruby",
    "node",
    "cd",
    "nice",
    "ionice",
    "env",
    "sudo",
    "timeout",
    "flock",
    "test",
    "[",
}
_TIMES = re.compile(r"^\s*(@\w+|\S+\s+\S+\s+\S+\s+\S+\s+\S+)\s+(.*)$")
_HEADING = re.compile(r"^\s*#.*\bdow\s+(user(?:-name)?\s+)?command\b", re.MULTILINE)
_IN_FOLDER = re.compile(r"[A-Za-z0-9_-]+")
"""The files of cron.d that Debian's cron reads."""


def read(
    text: str, origin: str, *, tz: str, system: bool = False, note: str = "", names: Names | None = None
) -> Imported:
    """All lines of a crontab.

    `system`: it has a column for the user, as in /etc/crontab and /etc/cron.d. `note`: why it was read so.
    """
    names, environment = names or Names(), dict[str, str]()
    found, left = list[Found](), list[Left]()
    for line in text.splitlines():
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        if setting := _ENVIRONMENT.match(line):
            environment[setting[1]] = next((part for part in setting.groups()[1:] if part is not None), "")
            continue
        times = _TIMES.match(line)
        if times is None:
            left.append(Left(line.strip(), "this is not a line of a crontab."))
            continue
        expression, command = times[1], times[2].strip()
        user = ""
        if system:
            user, _, command = command.partition(" ")
        zone = environment.get("CRON_TZ", tz)
        try:
            trigger = cron(expression, zone)
        except ConfigurationError as error:
            left.append(Left(line.strip(), str(error)))
            continue
        found.append(_job(names, trigger, command.strip(), source=line.strip(), environment=environment, user=user))
    return Imported(origin, tuple(found), tuple(left), (*([note] if note else []), *DIFFERENCES))


def read_folder(folder: Path, *, tz: str, system: bool | None) -> Imported:
    """The files of a folder such as /etc/cron.d, each with its own settings."""
    names = Names()
    parts, left = list[Imported](), list[Left]()
    for file in sorted(one for one in folder.iterdir() if one.is_file()):
        if _IN_FOLDER.fullmatch(file.name):
            text = file.read_text()
            with_user, note = user_column(text, file, system)
            parts.append(
                read(text, str(file), tz=tz, system=with_user, note=note and f"{file.name}: {note}", names=names)
            )
        elif not file.name.startswith("."):
            left.append(Left(file.name, "cron reads only files whose names consist of A-Z a-z 0-9 _ and -."))
    left += [one for part in parts for one in part.left]
    differences = dict.fromkeys(text for part in parts for text in part.differences)
    return Imported(str(folder), tuple(one for part in parts for one in part.found), tuple(left), tuple(differences))


def user_column(text: str, place: Path | None, given: bool | None = None) -> tuple[bool, str]:
    """Whether the sixth column is a user, as in /etc/crontab, and a note if that was detected and not given.

    `place`: None for standard input.
    """
    if given is not None:
        return given, ""
    if place is not None and (str(place) == "/etc/crontab" or str(place.parent) == "/etc/cron.d"):
        return True, ""
    heading = _HEADING.search(text)
    first = {words[0]: words[1] for words in map(str.split, _commands(text)) if len(words) > 1}
    users = [word for word in first if _is_user(word)]
    in_cron_d = place is not None and place.parent.name == "cron.d"
    if heading[1] if heading else in_cron_d or "root" in first or (users and len(users) == len(first)):
        why = "its heading says so" if heading else "it is in cron.d" if in_cron_d else f"{users[0]} is a user here"
        return True, f"the sixth column was read as a user ({why}). --no-user-column reads it as part of the command."
    doubtful = [word for word, second in first.items() if word in users or (_unknown(word) and second[0] == "/")]
    if doubtful:
        return False, f"{', '.join(doubtful)} was read as a command. --user-column reads it as a user."
    return False, ""


def _commands(text: str) -> list[str]:
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#") and not _ENVIRONMENT.match(line)]
    return [times[2] for times in map(_TIMES.match, lines) if times]


def _is_user(word: str) -> bool:
    """A user of this host, or root, that is not also the name of a program."""
    # Path.expanduser raises for unknown users.
    return word == "root" or (_unknown(word) and os.path.expanduser(f"~{word}") != f"~{word}")  # noqa: PTH111


def _unknown(word: str) -> bool:
    """True if it may be the name of a user and is not that of a program."""
    return bool(re.fullmatch(r"[a-z_][a-z0-9_-]*", word)) and word not in _BEFORE and not shutil.which(word)


def local_zone() -> str:
    """The name of this host's zone, or UTC."""
    parts = Path("/etc/localtime").resolve().parts
    return "/".join(parts[parts.index("zoneinfo") + 1 :]) if "zoneinfo" in parts else "UTC"


def _job(names: Names, trigger: Trigger, command: str, *, source: str, environment: dict[str, str], user: str) -> Found:
    command, stdin = _stdin(command)
    given = {key: value for key, value in environment.items() if key not in {"MAILTO", "CRON_TZ", "SHELL", "LOGNAME"}}
    home = environment.get("HOME")
    folder = repr(home) if home else "os.path.expanduser('~')"
    arguments = [repr(command), "shell=True", "check=True", f"cwd={folder}"]
    if given:
        arguments.append(f"env={{**os.environ, {', '.join(f'{key!r}: {value!r}' for key, value in given.items())}}}")
    imports = ["import subprocess", *(["import os"] if given or not home else [])]
    if shell := environment.get("SHELL"):
        arguments.append(f"executable={shell!r}")
    if stdin is not None:
        arguments += [f"input={stdin!r}", "text=True"]
    notes = []
    if environment.get("MAILTO"):
        notes.append(f"nothing is mailed to {environment['MAILTO']}: write @scheduler.on(RunFailed).")
    if user:
        notes.append(f"it ran as {user}; here it runs as the user of the node.")
    return Found(
        name=names.of(_title(command)),
        trigger=trigger,
        body=(f"subprocess.run({', '.join(arguments)})",),
        source=source,
        imports=tuple(imports),
        notes=tuple(notes),
    )


def _stdin(command: str) -> tuple[str, str | None]:
    """A percent sign ends the command; the rest is its input, in which further percent signs end lines."""
    parts = [part.replace("\\%", "%") for part in re.split(r"(?<!\\)%", command)]
    return parts[0], "\n".join(parts[1:]) + "\n" if len(parts) > 1 else None


def _title(command: str) -> str:
    """The program that a command runs, without a leading `cd` or interpreter."""
    command = _FOLDER.sub("", command)
    try:
        words = shlex.split(command)
    except ValueError:
        words = command.split()
    programs = [PurePosixPath(word).stem for word in words if not word.startswith("-") and "=" not in word]
    while len(programs) > 1 and (programs[0] in _BEFORE or programs[0].isdigit()):
        programs = programs[1:]
    return programs[0] if programs else command
