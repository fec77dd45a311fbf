"""SQL files are read by people: every named statement and every function says what it is for."""

import re
from importlib import resources

import pytest

FILES = {str(path): path.read_text(encoding="utf-8") for path in sorted(resources.files("tenure").rglob("*.sql"))}
NAMED = r"^-- name: (?P<name>\w+)\n(?P<said>.*)"
FUNCTION = r"^(?P<said>.*)\nCREATE OR REPLACE FUNCTION \{schema\}\.(?P<name>\w+)"


@pytest.mark.parametrize(("pattern", "at_least"), [(NAMED, 150), (FUNCTION, 40)], ids=["statements", "functions"])
def test_each_has_a_description(pattern, at_least):
    found = [
        (path, *match.group("name", "said"))
        for path in FILES
        for match in re.finditer(pattern, FILES[path], re.MULTILINE)
    ]
    assert len(found) > at_least
    assert [(path, name) for path, name, said in found if not re.match(r"-- \s*\S", said)] == []


def test_lines_are_within_120_columns():
    lines = [(path, number, line) for path in FILES for number, line in enumerate(FILES[path].splitlines(), 1)]
    assert [(path, number) for path, number, line in lines if len(line) > 120] == []


@pytest.mark.parametrize("store", ["postgres", "sqlite"])
def test_migrations_are_numbered_without_a_hole(store):
    found = [re.search(rf"/{store}/(?:sql/)?migrations/(\d{{3}})_", path) for path in FILES]
    numbers = [int(match[1]) for match in found if match]
    assert numbers == list(range(1, len(numbers) + 1))
    assert numbers
