"""What lies on the host: files are found by plain ids alone, links are not followed, and folders that others may write are not used."""

import pytest

from security.rows import PostgresHand, SqliteHand
from tenure import evidence
from tenure.cli import main
from tenure.evidence import LockFile, Proof
from tenure.stores import store_for
from tenure.stores.bell import Bell
from tenure.stores.unreadable import printable


@pytest.fixture
def inside(tmp_path):
    folder = tmp_path / "inside"
    folder.mkdir()
    return folder


@pytest.mark.parametrize("node", ["../outside", "../inside/../outside", "a/../../outside", ""])
def test_nothing_outside_is_opened_written_or_removed(inside, tmp_path, node):
    for suffix in (".lock", ".bell"):
        (tmp_path / f"outside{suffix}").write_text("mine")
    card = LockFile(inside, "known").card()
    assert evidence.probe(inside, node, card) is Proof.NOTHING
    assert evidence.read_pulse(inside, node, card) is None
    assert evidence.last_pulse_at(inside, node) is None
    Bell.ring(inside, node, "words")
    evidence.clear(inside, node)
    assert [(tmp_path / f"outside{suffix}").read_text() for suffix in (".lock", ".bell")] == ["mine", "mine"]


def test_a_link_is_not_followed(inside):
    lock = LockFile(inside, "known")
    assert evidence.probe(inside, "known", lock.card()) is Proof.ALIVE
    (inside / "linked.lock").symlink_to(inside / "known.lock")
    assert evidence.probe(inside, "linked", lock.card()) is Proof.NOTHING
    lock.remove()


def test_the_file_of_another_node_proves_nothing(inside):
    lock, other = LockFile(inside, "known"), LockFile(inside, "other")
    assert evidence.probe(inside, "other", lock.card()) is Proof.NOTHING
    lock.remove()
    other.remove()


@pytest.mark.parametrize("mode", [0o777, 0o770, 0o702])
def test_a_folder_that_others_may_write_is_not_used(inside, monkeypatch, mode):
    monkeypatch.setenv("TENURE_RUNTIME_DIR", str(inside))
    inside.chmod(0o700)
    assert evidence.runtime_directory() == inside
    inside.chmod(mode)
    assert evidence.runtime_directory() is None


@pytest.mark.parametrize("store", ["sqlite_url", "database"])
def test_a_name_cannot_move_the_cursor_or_forge_a_line(request, capsys, store):
    url = request.getfixturevalue(store)
    store_for(url).prepare()
    hand = (SqliteHand if store == "sqlite_url" else PostgresHand)(url, "app")
    if store == "database":
        hand.execute("INSERT INTO tenure.application (name) VALUES ('app')")
    hand.job("evil\x1b[2J\nforged: all is well\u202e")
    assert main(["jobs", "--url", url]) == 0
    shown = capsys.readouterr().out
    assert "evil\\x1b[2J\\nforged" in shown
    assert not {"\x1b", "\u202e"} & set(shown)
    assert printable("plain 선거") == "plain 선거"
