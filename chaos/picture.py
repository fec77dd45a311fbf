"""A timeline as SVG: what was done to the workers, who planned, and how late bodies began.

Written by hand, for light and dark pages.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape

from harness.chronicle import Fate, quantile
from harness.tallies import Fault, Term

PANELS = 4
LONGEST = 60.0
"""Seconds of a play that are shown."""
WIDTH, LEFT, RIGHT = 1000, 104, 16
BLOWS, TERMS, LATE = 44, 34, 120
"""Heights of the three bands."""
STEP = 4
"""So many pixels of time are drawn as one bar of lateness."""
SOONEST, LATEST = 0.0005, 20.0
COLOURS = 8
CROSSES = {0, 4}
"""Shapes without an inside."""


@dataclass(frozen=True, slots=True)
class Colours:
    """Of a page."""

    page: str
    ink: str
    faint: str
    rule: str
    term: str
    other: str
    late: str
    again: str
    kinds: tuple[str, ...]


LIGHT = Colours(
    page="#ffffff",
    ink="#1f2328",
    faint="#656d76",
    rule="#d0d7de",
    term="#54709e",
    other="#a9bbd9",
    late="#7f9c8a",
    again="#cf222e",
    kinds=("#cf222e", "#0969da", "#1a7f37", "#9a6700", "#8250df", "#bf3989", "#1b7c83", "#57606a"),
)
DARK = Colours(
    page="#0d1117",
    ink="#e6edf3",
    faint="#8d96a0",
    rule="#30363d",
    term="#6e8fc4",
    other="#3d5276",
    late="#5f8a70",
    again="#ff7b72",
    kinds=("#ff7b72", "#79c0ff", "#56d364", "#e3b341", "#d2a8ff", "#ff9bce", "#76e3ea", "#b1bac4"),
)


@dataclass(frozen=True, slots=True)
class Film:
    """What was seen of one round of a play."""

    title: str
    store: str
    faults: Sequence[Fault]
    terms: Sequence[Term]
    fates: Sequence[Fate]


def draw(films: Sequence[Film]) -> str:
    """The first film of each play, one below the other."""
    shown = list({film.title: film for film in reversed(films) if film.fates}.values())[::-1][:PANELS]
    kinds = dict.fromkeys(fault.kind for film in shown for fault in film.faults)
    numbers = {kind: number for number, kind in enumerate(kinds)}
    parts, top = list(_key()), 36
    for film in shown:
        panel = _Panel(film, top, numbers)
        parts += list(panel.draw())
        top += panel.height
    size = f'width="{WIDTH}" height="{top}" viewBox="0 0 {WIDTH} {top}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-label="Timeline of faults, planners and lateness">'
    return "\n".join(
        [head, f"<style>{_style()}</style>", f'<rect class="page" width="{WIDTH}" height="{top}"/>', *parts, "</svg>\n"]
    )


def _key() -> Iterator[str]:
    """What the lateness is drawn with."""
    yield f'<path class="late" d="M{LEFT + 4} 10v14"/>'
    yield _text(LEFT + 14, 21, "from the median to the latest of the bodies that began then")
    yield f'<circle class="again" cx="{LEFT + 410}" cy="17" r="2.5"/>'
    yield _text(LEFT + 420, 21, "had been claimed by a process that was struck, and began again")


class _Panel:
    """One film, from `top` downwards. Each kind of blow has a number."""

    def __init__(self, film: Film, top: int, numbers: Mapping[str, int]) -> None:
        self._film = film
        begun = [fate.at for fate in film.fates if fate.at is not None]
        self._since = min([*begun, *(fault.at for fault in film.faults)], default=0.0)
        ends = max([*begun, *(fault.at + fault.lasts for fault in film.faults)], default=1.0)
        self._until = min(ends + 0.5, self._since + LONGEST)
        self._kinds = {fault.kind: numbers[fault.kind] for fault in film.faults if self._seen(fault.at)}
        self._blows = top + 62
        self._terms = self._blows + BLOWS
        self._late = self._terms + TERMS + 18
        self._bottom = self._late + LATE
        self.height = self._bottom + 34 - top
        self._top = top

    def draw(self) -> Iterator[str]:
        title, _, setting = self._film.title.partition(": ")
        yield _text(LEFT, self._top + 14, f"{title} ({self._film.store})", "title")
        yield from self._legend(setting)
        for name, y in (
            ("faults", self._blows + 14),
            ("who plans", self._terms + 20),
            ("began late by", self._late - 4),
        ):
            yield _text(LEFT - 12, y, name, anchor="end")
        yield from self._scale()
        yield from self._lateness()
        yield from self._planners()
        yield from self._marks()

    def _seen(self, at: float) -> bool:
        return self._since <= at <= self._until

    def _x(self, at: float) -> float:
        share = (at - self._since) / max(self._until - self._since, 1e-9)
        return round(LEFT + min(max(share, 0.0), 1.0) * (WIDTH - LEFT - RIGHT), 1)

    def _y(self, late: float) -> float:
        span = math.log(LATEST / SOONEST)
        share = math.log(min(max(late, SOONEST), LATEST) / SOONEST) / span
        return round(self._bottom - share * LATE, 1)

    def _legend(self, setting: str) -> Iterator[str]:
        yield _text(LEFT, self._top + 30, setting, "small")
        x = LEFT
        for kind, number in self._kinds.items():
            yield _mark(x + 5, self._top + 46, number)
            yield _text(x + 14, self._top + 50, kind)
            x += 28 + round(7.2 * len(kind))

    def _scale(self) -> Iterator[str]:
        """Time below, lateness at the left."""
        for late, name in ((0.001, "1 ms"), (0.01, "10 ms"), (0.1, "100 ms"), (1.0, "1 s"), (10.0, "10 s")):
            y, kind = self._y(late), "line bound" if late == 0.1 else "line"
            yield f'<line class="{kind}" x1="{LEFT}" y1="{y}" x2="{WIDTH - RIGHT}" y2="{y}"/>'
            yield _text(LEFT - 12, y + 4, name, "small", anchor="end")
        every = next((step for step in (1, 2, 5, 10) if (self._until - self._since) / step <= 14), 20)
        for second in range(0, int(self._until - self._since) + 1, every):
            yield _text(self._x(self._since + second), self._bottom + 16, f"{second} s", "small", anchor="middle")

    def _lateness(self) -> Iterator[str]:
        """A bar from the median to the latest of the bodies that began then; a ring for each that was hit."""
        bins: dict[int, list[float]] = defaultdict(list)
        rings: list[str] = []
        for fate in self._film.fates:
            if fate.at is None or fate.late is None or not self._seen(fate.at):
                continue
            if fate.hit or fate.state == "doubled":
                kind = "wrong" if fate.state == "doubled" else "again"
                rings.append(
                    f'<circle class="{kind}" cx="{self._x(fate.at)}" cy="{self._y(fate.late)}" r="2.5"><title>{fate.job}</title></circle>'
                )
            else:
                bins[int(self._x(fate.at) // STEP)].append(fate.late)
        path = "".join(
            f"M{number * STEP + STEP / 2:g} {self._y(quantile(late, 0.5)) + 1}V{self._y(max(late)) - 1}"
            for number, late in sorted(bins.items())
        )
        yield f'<path class="late" d="{path}"/>'
        yield from rings

    def _planners(self) -> Iterator[str]:
        """Terms in turn above and below each other, so that a gap or an overlap shows."""
        for number, term in enumerate(self._film.terms):
            if term.until < self._since or term.since > self._until:
                continue
            x, width = self._x(term.since), max(self._x(term.until) - self._x(term.since), 1.0)
            y, kind = (self._terms + 2, "term") if number % 2 == 0 else (self._terms + 16, "term odd")
            yield f'<rect class="{kind}" x="{x}" y="{y}" width="{width:.1f}" height="12"><title>{escape(term.label)}</title></rect>'

    def _marks(self) -> Iterator[str]:
        for fault in self._film.faults:
            if not self._seen(fault.at):
                continue
            number = self._kinds[fault.kind]
            x, y = self._x(fault.at), self._blows + 6 + (number % 3) * 11
            if fault.lasts:
                yield f'<line x1="{x}" y1="{y}" x2="{self._x(fault.at + fault.lasts)}" y2="{y}" class="k{number % COLOURS}" stroke-width="2"/>'
            if fault.on_planner:
                yield f'<line x1="{x}" y1="{y}" x2="{x}" y2="{self._terms + 28}" class="k{number % COLOURS}" stroke-opacity="0.5"/>'
            yield _mark(x, y, number, f"{fault.kind} {fault.target}")


def _text(x: float, y: float, text: str, kind: str = "", anchor: str = "start") -> str:
    return f'<text{f" class={kind!r}" if kind else ""} x="{x}" y="{y}" text-anchor="{anchor}">{escape(text)}</text>'


def _mark(x: float, y: float, number: int, title: str = "") -> str:
    """A shape and a colour for each kind."""
    shapes = (
        f"M{x - 4} {y - 4}l8 8m0 -8l-8 8",
        f"M{x - 4} {y - 4}h8v8h-8z",
        f"M{x} {y - 5}l5 9h-10z",
        f"M{x} {y - 5}l5 5l-5 5l-5 -5z",
        f"M{x - 5} {y}h10m-5 -5v10",
        f"M{x} {y + 5}l5 -9h-10z",
    )
    kind = f"k{number % COLOURS}" + ("" if number % len(shapes) in CROSSES else f" f{number % COLOURS}")
    named = f"<title>{escape(title)}</title>" if title else ""
    return f'<path class="{kind}" d="{shapes[number % len(shapes)]}" stroke-width="2">{named}</path>'


def _style() -> str:
    fixed = (
        "text { font: 12px system-ui, sans-serif; } .title { font-weight: 600; font-size: 14px; } .small { font-size: 11px; }"
        " line { stroke-width: 1; } .bound { stroke-dasharray: 4 4; } .late { stroke-width: 3; } .again { fill: none; stroke-width: 1.5; }"
    )
    return f"{fixed}\n{_colours(LIGHT)}\n@media (prefers-color-scheme: dark) {{ {_colours(DARK)} }}"


def _colours(page: Colours) -> str:
    kinds = " ".join(
        f".k{number} {{ stroke: {colour}; fill: none; }} .f{number} {{ fill: {colour}; }}"
        for number, colour in enumerate(page.kinds)
    )
    return (
        f".page {{ fill: {page.page}; }} text {{ fill: {page.ink}; }} .small {{ fill: {page.faint}; }}"
        f" .line {{ stroke: {page.rule}; }} .bound {{ stroke: {page.faint}; }}"
        f" .term {{ fill: {page.term}; }} .odd {{ fill: {page.other}; }} .late {{ stroke: {page.late}; }}"
        f" .again {{ stroke: {page.again}; }} .wrong {{ fill: {page.again}; }} {kinds}"
    )
