"""What chaos found is told: by kind of blow, with the command that repeats a broken round, and in a picture that is
well formed."""

import random
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from chaos import chaos, picture, report
from chaos.picture import Film
from chaos.report import Failure, Occasion, Result
from harness.chronicle import Fate, Line
from harness.tallies import CALM, Fault, Tally, Term

OCCASION = Occasion("python3 dev.py chaos --minutes 1 --seed 7", 1.0, 7, 0.5)
SVG = "{http://www.w3.org/2000/svg}"


def fate(due, late, **more):
    began = Line("start", "tick", f"key {due}", 1, due, due + late, 1, "w0")
    known = {"state": "ran", "began": (began,), "at": due + late, "late": late, "attempt": 1}
    return Fate("tick", due, **{**known, **more})


def film(title="Storm: 3 workers"):
    faults = [Fault("kill <9>", "w0", 3.0, 0.0, True, True), Fault("freeze", "w1", 4.0, lasts=1.0)]
    terms = [Term("w0", 0.0, 3.0), Term("w1", 3.2, 9.0)]
    fates = [fate(1.0, 0.001), fate(2.0, 2.0, attempt=2), fate(4.0, 0.2, state="doubled"), Fate("tick", 5.0, "lost")]
    return Film(title, "SQLite", faults, terms, fates)


def drawn(films):
    return ET.fromstring(picture.draw(films))  # noqa: S314 - our own


def test_the_picture_shows_blows_terms_and_what_was_hit():
    root = drawn([film()])
    assert [ring.get("class") for ring in root.iter(f"{SVG}circle")] == ["again", "again", "wrong"], "one is the key"
    assert {rect.findtext(f"{SVG}title") for rect in root.iter(f"{SVG}rect")} == {None, "w0", "w1"}
    assert {"kill <9>", "freeze"} <= {text.text for text in root.iter(f"{SVG}text")}


def test_the_picture_shows_each_play_once_and_not_too_many():
    titles = [f"Play {number}: setting" for number in range(picture.PANELS + 2)]
    root = drawn([film(title) for title in titles for _ in range(2)])
    shown = [text.text for text in root.iter(f"{SVG}text") if text.get("class") == "title"]
    assert shown == [f"Play {number} (SQLite)" for number in range(picture.PANELS)]


def test_the_table_counts_what_is_over_the_bound():
    kinds = {CALM: Tally(due=1, lateness=[0.01]), "kill -9": Tally(2, 4, 1, 1, 1, [0.02, 0.2], [3.0], [0.1], [0.05])}
    head, _, calm, kill, whole = report.table(kinds)
    columns = [cell.strip() for cell in head.split("|")]
    cells = dict(zip(columns, (cell.strip() for cell in kill.split("|")), strict=True))
    assert (cells["how often"], cells["due times"], cells["lost"], cells["doubled"]) == ("2", "4", "1", "1")
    assert (cells["over 100 ms"], cells["late, ms"], cells["next planner, ms"]) == (
        "1",
        "200 / 200 / 200",
        "100 / 100 / 100",
    )
    assert calm.startswith(f"| {CALM}")
    assert whole.split("|")[3].strip() == "5"


def test_the_page_names_the_command_the_peers_and_what_was_broken(tmp_path):
    (tmp_path / "peers.md").touch()
    result = Result(
        "storm", "Storm: 3 workers", "SQLite", failures=[Failure("lost: 1", "python3 dev.py chaos --only storm")]
    )
    page = report.page([result], OCCASION, Path("x.svg"), tmp_path)
    assert OCCASION.command in page
    assert "(x.svg)" in page
    assert "(peers.md)" in page
    assert "1 of 1 plays broke a promise" in page
    assert "again with `python3 dev.py chaos --only storm`" in page


class Calm:
    so = False


def test_a_round_that_breaks_is_told_with_its_seed_and_does_not_end_the_others(capsys):
    def breaks(_result, _store, _seconds, dice):
        raise AssertionError(f"lost {dice.random()}")

    result = Result("storm", "Storm", "SQLite")
    chaos.one_round(breaks, result, 30.0, 7, Calm())
    (failure,) = result.failures
    assert failure.again == "python3 dev.py chaos --only storm --store SQLite --seed 7 --minutes 0.5"
    assert failure.what == f"AssertionError: lost {random.Random(7).random()}"
    assert failure.again in capsys.readouterr().out
    assert result.rounds == 1


def test_a_round_that_was_interrupted_is_not_counted():
    def stops(_result, _store, _seconds, _dice):
        raise KeyboardInterrupt

    interrupted, result = Calm(), Result("storm", "Storm", "SQLite")
    interrupted.so = True
    chaos.one_round(stops, result, 30.0, 7, interrupted)
    assert (result.rounds, result.failures) == (0, [])


def test_every_play_can_be_named_and_has_a_title():
    for play, _, share in chaos.PLAYS:
        assert (play.__doc__ or "").strip(), play.__name__
        assert share > 0


@pytest.mark.parametrize("values", [[], [0.001], [0.5, 0.1]])
def test_three_figures_of_a_distribution(values):
    assert report.three(values) == {0: "", 1: "1 / 1 / 1", 2: "500 / 500 / 500"}[len(values)]
