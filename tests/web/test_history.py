"""The past of a job on its page: a year of days, months, and charts, from figures that outlive the runs."""

import json
import re
from html import unescape
from importlib.resources import files

from harness.scratch import eventually
from tenure.core.figures import DAY, HOUR, Figures, FiguresRow, Measure
from tenure.core.messages import NewRun, Planned
from tenure.core.records import JobId, RunState
from tenure.util.instants import moment
from tenure.web.history_drawings import MARKS, Course, Mark, heat_map, lines, told

NOON = 1_795_003_200.0


def _row(ago, **counts):
    return FiguresRow(JobId(1), (NOON - ago * DAY) // DAY * DAY, Figures(**counts))


def test_a_day_is_drawn_by_the_worst_that_happened():
    took = Measure(4_000_000, 3_000_000, {0: 2})
    drawn = heat_map(
        [_row(0, succeeded=23, failed=1, took=took), _row(1, succeeded=1)], moment(NOON), lambda day: f"/{day:%d}"
    )
    failed, fine = re.findall(r'<a href="([^"]+)"[^>]*><path class="([^"]+)"[^>]*><title>([^<]+)', drawn)[::-1]
    assert failed[1] == "d-failed q4"
    assert failed[2].endswith("23 succeeded, 1 failed; took at most 3.0 s")
    assert fine[1] == "d-succeeded q1"
    assert failed[0] == f"/{moment(NOON):%d}"
    assert len(set(MARKS.values())) >= len(MARKS) - 1, "told apart by shape; what did not run looks the same"


def test_days_without_runs_lead_nowhere():
    drawn = heat_map([], moment(NOON), lambda _day: "/")
    assert "<a " not in drawn
    assert drawn.count("d-none") > 364
    assert told(Figures()) == "no runs"


def test_lines_leave_out_what_is_not_there_and_show_changes():
    given = [Course("took", (1.0, None, 100.0)), Course("none", (None, None, None))]
    drawn = lines([0.0, 1.0, 2.0], given, [Mark(1.0, "updated by <b>")], span=(0.0, 2.0))
    assert "updated by &lt;b&gt;" in drawn
    assert drawn.count("h.01") == 2
    assert "style=" not in drawn
    assert lines([], [], [], span=(0.0, 1.0)) == ""


def _past(scheduler, name="sync_stock"):
    """Give a job a past that retention has removed. Returns how many due times it missed."""
    with scheduler._service.ledger() as ledger:
        (job,) = ledger.jobs(scheduler.application, name)
        for run in scheduler.runs(name, state=("pending", "waiting")):  # retention removes nothing after an open run
            ledger.cancel(run.id, "ops", "")
        now = ledger.now()
        ago = [DAY * day + HOUR * hour for day in range(3) for hour in range(1, 24, 2)]
        runs = tuple(NewRun(now - one, now - one, None, RunState.SKIPPED, "missed") for one in ago)
        assert ledger.plan([Planned(job.id, job.generation, job.next_due, job.next_due + 1, runs)]) == len(runs)
        while ledger.prune(scheduler.application, before=now + 60, keep=0, limit=100).removed:
            pass
        return sum(row.figures.missed for row in ledger.days(scheduler.application, name, 0.0, now + DAY))


def test_the_page_of_a_job_shows_what_retention_has_removed(resting, opened):
    name = "sync_stock"
    missed = _past(resting, name)
    page = opened(resting).get(f"/job?name={name}").text
    assert "There are no runs." in page
    assert missed >= 36
    assert page.count('<path class="d-missed') >= 4, "each of these days, and the legend"
    assert (
        sum(int(count.replace(",", "")) for count in re.findall(r'data-th="Missed" class="n">([\d,]+)', page)) == missed
    )
    data = [json.loads(unescape(text)) for text in re.findall(r'data-plot="([^"]+)"', page)]
    assert data == [], "nothing ran, so there is nothing to draw"


def test_charts_have_their_data_beside_the_drawing(scheduler, opened):
    name = "sync_stock"
    eventually(lambda: scheduler.runs(name, state="succeeded"), within=20)
    with scheduler._service.ledger() as ledger:
        ledger.count_hours(scheduler.application, since=None, beyond=JobId(0), jobs=100)
    browser = opened(scheduler)
    page = browser.get(f"/job?name={name}").text
    took, late = (json.loads(unescape(text)) for text in re.findall(r'data-plot="([^"]+)"', page))
    assert len(took["times"]) == len(took["lines"][0]["values"]) == len(late["times"]) >= 1
    assert page.count('<svg class="chart"') == 2
    assert re.search(
        r'<a href="/job\?name=sync_stock&amp;before=[^"]+#runs" tabindex="-1"><path class="d-succeeded', page
    )
    for file in re.findall(r'(?:src|href)="(/static/[^"]+)"', page):
        assert browser.get(file).status_code == 200
    assert "uPlot" not in browser.get("/").text


def test_the_palest_square_can_be_seen():
    """Without a text it needs 3:1 against the paper (WCAG 1.4.11), by every theme, colour and shade."""
    read = {name: files("tenure.web").joinpath("static", name).read_text() for name in ("page.css", "figures.css")}
    shades = [float(found) for found in re.findall(r"path\.q\d \{ fill-opacity: ([.\d]+)", read["figures.css"])]
    assert len(shades) == 3
    themes = [dict(re.findall(r"--(\w+): (#[0-9a-f]{3,6})\b", part)) for part in read["page.css"].split("@media")[:2]]
    for theme in themes:
        for colour in ("good", "grey", "link"):
            for shade in shades:
                found = contrast(channels(theme[colour]), channels(theme["paper"]), shade)
                assert found >= 3, (theme["paper"], colour, shade, found)


def channels(colour):
    digits = colour[1:] if len(colour) == 7 else "".join(2 * one for one in colour[1:])
    return [int(digits[at : at + 2], 16) / 255 for at in (0, 2, 4)]


def contrast(front, back, shade):
    """Of a colour that lets the paper through."""

    def light(parts):
        return sum(
            weight * (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4)
            for weight, part in zip((0.2126, 0.7152, 0.0722), parts, strict=True)
        )

    mixed = [shade * one + (1 - shade) * other for one, other in zip(front, back, strict=True)]
    brighter, darker = sorted((light(mixed), light(back)), reverse=True)
    return (brighter + 0.05) / (darker + 0.05)
