"""Crontabs, as Debian's cron reads them."""

from __future__ import annotations

import re
import shlex
from pathlib import Path, PurePosixPath

from tenure.errors import ConfigurationError
from tenure.importers.found import Found, Imported, Left, Names
from tenure.triggers import Trigger, cron

DIFFERENCES = (
    (
        "cron starts a command on its own host. Here any node starts it, once in the cluster: the command must be on all of them, or "
        "write queue='…' on the job and queues=['…'] on the nodes that have it."
    ),
    "cron starts a command although the last one still runs. Here the new one is skipped, and said to be; overlap='allow' is cron's way.",
    "cron forgets what was due while the machine was down. Here the latest is made up for; missed='skip' is cron's way.",
    (
        "cron mails the output and does not care about exit codes. Here an exit code other than 0 is a failed run (retries=, scheduler.on(RunFailed)), "
        "and output goes where the node's goes."
    ),
    "the command gets the environment of the node, not cron's short one, and its user.",
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


def read(text: str, origin: str, *, tz: str, system: bool = False) -> Imported:
    """All lines of a crontab. `system`: with a column for the user, as in /etc/crontab and /etc/cron.d."""
    names, environment = Names(), dict[str, str]()
    found, left = list[Found](), list[Left]()
    for line in text.splitlines():
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        if setting := _ENVIRONMENT.match(line):
            environment[setting[1]] = next((part for part in setting.groups()[1:] if part is not None), "")
            continue
        times = _TIMES.match(line)
        if times is None:
            left.append(Left(line.strip(), "this is no line of a crontab."))
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
    return Imported(origin, tuple(found), tuple(left), DIFFERENCES)


def is_system(path: str) -> bool:
    """Files that have a column for the user."""
    return path == "/etc/crontab" or path.startswith("/etc/cron.d/")


def local_zone() -> str:
    """The zone of this host, by name; UTC where it has none."""
    parts = Path("/etc/localtime").resolve().parts
    return "/".join(parts[parts.index("zoneinfo") + 1 :]) if "zoneinfo" in parts else "UTC"


def _job(names: Names, trigger: Trigger, command: str, *, source: str, environment: dict[str, str], user: str) -> Found:
    command, said = _stdin(command)
    given = {key: value for key, value in environment.items() if key not in {"MAILTO", "CRON_TZ", "SHELL", "LOGNAME"}}
    arguments = [repr(command), "shell=True", "check=True"]
    imports = ["import subprocess"]
    if given:
        arguments.append(f"env={{**os.environ, {', '.join(f'{key!r}: {value!r}' for key, value in given.items())}}}")
        imports.append("import os")
    if shell := environment.get("SHELL"):
        arguments.append(f"executable={shell!r}")
    if said is not None:
        arguments += [f"input={said!r}", "text=True"]
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
    """A percent sign ends the command; what follows is its input, with further ones as ends of lines."""
    parts = [part.replace("\\%", "%") for part in re.split(r"(?<!\\)%", command)]
    return parts[0], "\n".join(parts[1:]) + "\n" if len(parts) > 1 else None


def _title(command: str) -> str:
    """The program that a command is about: what comes after a change of folder, and what an interpreter is given."""
    command = _FOLDER.sub("", command)
    try:
        words = shlex.split(command)
    except ValueError:
        words = command.split()
    programs = [PurePosixPath(word).stem for word in words if not word.startswith("-") and "=" not in word]
    while len(programs) > 1 and (programs[0] in _BEFORE or programs[0].isdigit()):
        programs = programs[1:]
    return programs[0] if programs else command
