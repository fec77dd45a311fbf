"""Prints a report of the doctor, human-readable or as JSON."""

from __future__ import annotations

import json
import os
import shutil
import sys
import textwrap
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any, TextIO

from tenure.doctor.findings import Finding, Report, Severity
from tenure.util.printable import printable, spelt

ORDER: tuple[Severity, ...] = ("problem", "warning", "note", "ok")
_COLOURS = {"problem": "31;1", "warning": "33", "note": "36", "ok": "32"}
_TITLES = {"problem": "Problems", "warning": "Warnings", "note": "Notes"}
WIDTH = 110
"""Columns of the report; fewer on a narrower terminal."""


def as_json(report: Report, out: TextIO | None = None) -> None:
    """One JSON object; its keys are an interface."""
    out = out or sys.stdout
    whole = {
        "store": report.store,
        "server": report.server,
        "reachable": report.reachable,
        "exit": report.exit_code,
        "findings": [asdict(finding) for finding in report.findings],
        "holders": [asdict(holder) for holder in report.holders],
        "locks": [asdict(lock) for lock in report.locks],
    }
    out.write(json.dumps(whole, default=_plain, indent=2, ensure_ascii=out.isatty()) + "\n")


def as_text(report: Report, out: TextIO | None = None) -> None:
    """Problems first; passed checks last, in one line each."""
    out = out or sys.stdout
    coloured = _coloured(out)
    width = min(WIDTH, shutil.get_terminal_size().columns) if out.isatty() else WIDTH

    def paint(severity: str, text: str) -> str:
        return f"\033[{_COLOURS[severity]}m{text}\033[0m" if coloured else text

    def say(text: str = "") -> None:
        out.write(text + "\n")

    if report.store:
        say(printable(report.store + (f"  ({report.server})" if report.server else "")))
    for severity, title in _TITLES.items():
        found = [finding for finding in report.findings if finding.severity == severity]
        if found:
            say()
            say(paint(severity, title))
        for finding in found:
            _tell(finding, say, paint(severity, finding.code), width)
    fine = [finding for finding in report.findings if finding.severity == "ok"]
    if fine:
        say()
        say(paint("ok", "Fine" if len(fine) < len(report.findings) else "Everything is fine. What was checked:"))
        column = max(len(finding.code) for finding in fine)
        for finding in fine:
            say(f"  {finding.code:{column}}  {spelt(finding.what)}")
    _holders(report, say)
    _locks(report, say)
    say()
    say(_summary(report))


def _tell(finding: Finding, say: Any, code: str, width: int) -> None:
    say(f"  {code}: " + _wrapped(finding.what, width, first=len(finding.code) + 4))
    say("    why: " + _wrapped(finding.why, width, first=9))
    if finding.do:
        say("    do:  " + _wrapped(finding.do, width, first=9))


def _wrapped(text: str, width: int, *, first: int) -> str:
    lines: list[str] = []
    for part in spelt(text).split("\n"):
        indent = " " * (9 if lines else first)
        lines += textwrap.wrap(
            part,
            width,
            initial_indent=indent,
            subsequent_indent=" " * 9,
            break_long_words=False,
            break_on_hyphens=False,
        )
    return "\n".join(lines)[first:]


def _holders(report: Report, say: Any) -> None:
    if not report.holders:
        return
    say()
    say("Who leads")
    rows: list[tuple[str, ...]] = [("election", "term", "node", "state", "since", "process", "session", "client")]
    for holder in report.holders:
        name = holder.election + (" (advisory)" if holder.mode == "advisory" else "")
        facts = (holder.process, holder.session, holder.client)
        rows.append(
            (
                name,
                str(holder.term),
                holder.label or holder.node,
                holder.state,
                _since(holder.since),
                *map(_or_dash, facts),
            )
        )
    _table(rows, say)


def _locks(report: Report, say: Any) -> None:
    if not report.locks:
        return
    say()
    say("Locks on tenure's tables and sessions")
    rows: list[tuple[str, ...]] = [("what", "mode", "who", "client", "state", "since")]
    for lock in report.locks:
        who = f"{_or_dash(lock.pid)} {lock.user or ''} {lock.application or ''}".strip()
        waits = f" (waits for {', '.join(map(str, lock.waits_for))})" if not lock.granted else ""
        rows.append(
            (lock.target, lock.mode + waits, who, _or_dash(lock.client), _or_dash(lock.state), _since(lock.since))
        )
    _table(rows, say)


def _table(rows: list[tuple[str, ...]], say: Any) -> None:
    rows = [tuple(map(printable, row)) for row in rows]  # labels and names may contain any text
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        say("  " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def _summary(report: Report) -> str:
    counts = [(severity, sum(finding.severity == severity for finding in report.findings)) for severity in ORDER]
    words = {"problem": "problems", "warning": "warnings", "note": "notes", "ok": "checks fine"}
    singular = {"problem": "problem", "warning": "warning", "note": "note", "ok": "check fine"}
    found = ", ".join(f"{count} {(singular if count == 1 else words)[severity]}" for severity, count in counts if count)
    return found + ("" if report.reachable else ". The store could not be examined completely") + "."


def _since(moment: datetime | None) -> str:
    return "-" if moment is None else moment.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%SZ")


def _or_dash(value: object) -> str:
    return "-" if value is None or value == "" else str(value)


def _plain(value: object) -> str:
    return value.isoformat() if isinstance(value, datetime) else str(value)


def _coloured(out: TextIO) -> bool:
    return out.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
