"""What lies on the host: files are found by plain ids alone, links are not followed, and folders that others may write
are not used."""

import os
import stat
import tempfile
import threading
import uuid

import pytest

from security.rows import PostgresHand, SqliteHand
from tenure import Election, doctor
from tenure.cli import main
from tenure.errors import ConfigurationError
from tenure.stores import host_lock, store_for
from tenure.stores.host_lock import LockFile, Proof
from tenure.stores.sqlite.wakeup_pipe import WakeupPipe
from tenure.util.printable import printable


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
    assert host_lock.probe(inside, node, card) is Proof.NOTHING
    assert host_lock.read_pulse(inside, node, card) is None
    assert host_lock.last_pulse_at(inside, node) is None
    WakeupPipe.ring(inside, node, "words")
    host_lock.clear(inside, node)
    assert [(tmp_path / f"outside{suffix}").read_text() for suffix in (".lock", ".bell")] == ["mine", "mine"]


def test_a_link_is_not_followed(inside):
    lock = LockFile(inside, "known")
    assert host_lock.probe(inside, "known", lock.card()) is Proof.ALIVE
    (inside / "linked.lock").symlink_to(inside / "known.lock")
    assert host_lock.probe(inside, "linked", lock.card()) is Proof.NOTHING
    lock.remove()


def test_the_file_of_another_node_proves_nothing(inside):
    lock, other = LockFile(inside, "known"), LockFile(inside, "other")
    assert host_lock.probe(inside, "other", lock.card()) is Proof.NOTHING
    lock.remove()
    other.remove()


@pytest.mark.parametrize("mode", [0o777, 0o770, 0o702])
def test_a_folder_that_others_may_write_is_not_used(inside, monkeypatch, mode):
    monkeypatch.setenv("TENURE_RUNTIME_DIR", str(inside))
    inside.chmod(0o700)
    assert host_lock.runtime_directory() == inside
    inside.chmod(mode)
    assert host_lock.runtime_directory() is None


def test_a_sweep_removes_what_nodes_left_and_nothing_else(inside):
    def name():
        return inside / f"{uuid.uuid4()}.lock"

    dead, alive = str(uuid.uuid4()), str(uuid.uuid4())
    LockFile(inside, dead).let_go()
    bell = inside / f"{dead}.bell"
    os.mkfifo(bell)
    lock = LockFile(inside, alive)
    others = [inside / file for file in ("poetry.lock", "uv.lock", f"{dead[:-1]}.lock")]
    for file in (*others, other_content := name(), too_long := name()):
        file.write_bytes(bytes(8) + b"x" * 32 if file == other_content else bytes(8) + b"a" * 33)
    (linked := name()).symlink_to(other_content)
    os.mkfifo(pipe := name())
    host_lock.sweep(inside, older_than=2**40)
    assert not bell.exists()
    kept = {*others, other_content, too_long, linked, pipe, lock.path}
    assert set(inside.iterdir()) == kept
    lock.remove()


def test_a_bell_that_is_no_pipe_is_neither_rung_nor_removed(inside):
    node = str(uuid.uuid4())
    file = inside / f"{node}.bell"
    file.write_text("mine")
    WakeupPipe.ring(inside, node, "words")
    host_lock.clear(inside, node)
    assert file.read_text() == "mine"


def test_a_pipe_in_the_place_of_a_lock_file_holds_nobody_up(inside):
    lock = LockFile(inside, "known")
    lock.path.unlink()
    os.mkfifo(lock.path)
    seen = []
    looks = threading.Thread(
        target=lambda: seen.extend(
            (host_lock.probe(inside, "known", lock.card()), host_lock.read_pulse(inside, "known", lock.card()))
        ),
        daemon=True,
    )
    looks.start()
    looks.join(10)
    assert seen == [Proof.NOTHING, None]
    lock.remove()


@pytest.mark.parametrize(
    ("database", "folder", "file"),
    [(0o644, 0o700, 0o600), (0o600, 0o700, 0o600), (0o664, 0o770, 0o660), (0o666, 0o777, 0o666)],
)
def test_who_may_not_write_the_database_may_not_touch_the_files_beside_it(tmp_path, database, folder, file):
    path = tmp_path / "tenure.db"
    store = store_for(f"sqlite:///{path}")
    store.prepare()
    path.chmod(database)
    store.prepare()
    directory = store.evidence_directory
    assert stat.S_IMODE(directory.stat().st_mode) == folder
    mask = os.umask(0)
    try:
        with Election(f"sqlite:///{path}", "billing") as election:
            assert election.wait_until_leading(10)
            modes = {stat.S_IMODE(entry.stat().st_mode) for entry in directory.iterdir()}
            assert {entry.suffix for entry in directory.iterdir()} == {".lock", ".bell"}
    finally:
        os.umask(mask)
    assert modes == {file}


class TestAUserWhoMayWriteBesideTheDatabase:
    """She makes the folder `<database>-tenure` before the first node starts."""

    @pytest.fixture
    def path(self, tmp_path):
        (tmp_path / "shared").mkdir()
        (tmp_path / "shared").chmod(0o1777)
        return tmp_path / "shared" / "tenure.db"

    def refused(self, path, words):
        with pytest.raises(ConfigurationError, match=words):
            store_for(f"sqlite:///{path}").prepare()
        (found,) = [one for one in doctor.examine(f"sqlite:///{path}") if one.code == "evidence-directory"]
        assert (found.severity, words in found.what) == ("problem", True)

    def test_a_link_to_a_folder_of_ours_is_not_used(self, path, tmp_path):
        (tmp_path / "mine").mkdir()
        path.with_name(path.name + "-tenure").symlink_to(tmp_path / "mine")
        self.refused(path, "is a symbolic link")
        assert list((tmp_path / "mine").iterdir()) == []

    @pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
    def test_a_folder_of_hers_is_not_used(self, path):
        directory = path.with_name(path.name + "-tenure")
        directory.mkdir()
        os.chown(directory, 12345, 12345)
        directory.chmod(0o777)
        self.refused(path, "belongs to user 12345")
        assert stat.S_IMODE(directory.stat().st_mode) == 0o777

    @pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
    def test_a_folder_of_whoever_may_write_the_database_is_used(self, path):
        store = store_for(f"sqlite:///{path}")
        store.prepare()
        path.chmod(0o666)
        os.chown(store.evidence_directory, 12345, -1)
        store.prepare()

    def test_a_folder_of_ours_that_others_may_write_is_closed(self, path):
        directory = path.with_name(path.name + "-tenure")
        directory.mkdir()
        directory.chmod(0o777)
        store_for(f"sqlite:///{path}").prepare()
        assert stat.S_IMODE(directory.stat().st_mode) == 0o700


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


def test_without_any_temporary_folder_there_is_no_evidence_and_no_error(monkeypatch):
    """As in a container whose root is read-only; tests/scheduling/test_containers.py has one."""
    monkeypatch.delenv("TENURE_RUNTIME_DIR", raising=False)
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setattr(tempfile, "_candidate_tempdir_list", lambda: ["/proc/nowhere"])
    assert host_lock.runtime_directory() is None
