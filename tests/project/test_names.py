"""One word, one meaning: no class name is defined twice, no old name is left, and every module that is named exists."""

import ast
import importlib.util
import pkgutil
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

import tenure

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src/tenure"
TEXTS = sorted(
    path
    for pattern in ("src/tenure/**/*.py", "src/tenure/**/*.sql", "docs/**/*.md", "*.md", "pyproject.toml")
    for path in ROOT.glob(pattern)
)
OLD_WORDS = {
    "pacemaker": "heartbeat",
    "campaign": "control loop, elector",
    "keeper": "advisory loop",
    "herald": "callbacks",
    "conductor": "scheduler's loop",
    "timekeeper": "database clock",
    r"roll[ _]calls?|RollCall": "reconcile",
    r"RunKind\.ASKED|ask_runs|kind = 'asked'": "manual, request_runs",
    r"unbar|unbarred|barred": "withdraw, stand",
    r"scheduler\.resign": "ask_planner_to_resign",
    r"errors\.RunLost|errors\.RunCancelled": "AttemptLost, AttemptCancelled",
    r"intents?": "deferred operation",
    r"the other colour|either colour|both colours": "async",
}
OLD_CLASSES = {
    *(
        "Pacemaker",
        "Campaign",
        "Keeper",
        "Herald",
        "Conductor",
        "Timekeeper",
        "Standing",
        "Somebody",
        "Quiet",
        "Runner",
    ),
    *("Asked", "Said", "Kept", "Intent", "Intents", "RollCall", "Hands", "Duty", "Member", "Desk", "Loops", "Alarm"),
}
NOT_MODULES = {"db", "fish"}
"""`tenure.db` and `tenure.fish` are files."""


PINNED = (ROOT / "tests/project/contract_snippets.md").read_text().splitlines()
"""Snippets that the documentation shows as they were agreed on."""


def classes() -> Iterator[tuple[str, Path]]:
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                yield node.name, path.relative_to(ROOT)


def test_no_class_name_is_defined_twice():
    places = defaultdict(list)
    for name, path in classes():
        places[name].append(str(path))
    assert {name: paths for name, paths in places.items() if len(paths) > 1} == {}


def test_no_old_class_is_left():
    assert {name for name, _ in classes()} & OLD_CLASSES == set()


@pytest.mark.parametrize("word", OLD_WORDS)
def test_no_old_word_is_left(word):
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in TEXTS
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if re.search(rf"(?<![\w-])(?:{word})(?![\w-])", line, re.IGNORECASE) and line not in PINNED
    ]
    assert found == [], f"say {OLD_WORDS[word]}"


def test_every_module_that_is_named_exists():
    sql = "".join(path.read_text() for path in PACKAGE.rglob("*.sql"))
    known = NOT_MODULES | set(re.findall(r"\{schema\}\.(\w+)", sql)) | set(dir(tenure))
    known |= {module.name for module in pkgutil.iter_modules(tenure.__path__)}
    missing = defaultdict(set)
    for path in TEXTS:
        for name, part in re.findall(r"(?<![\w./])tenure\.([a-z_]\w*)(?:\.([a-z_]\w*))?", path.read_text()):
            if name not in known:
                missing[f"tenure.{name}"].add(path.name)
            elif part and (PACKAGE / name).is_dir() and not exists(name, part):
                missing[f"tenure.{name}.{part}"].add(path.name)
    assert dict(missing) == {}


def exists(package: str, part: str) -> bool:
    if importlib.util.find_spec(f"tenure.{package}.{part}") is not None:
        return True
    text = (PACKAGE / package / "__init__.py").read_text()
    return re.search(rf"\b{part}\b", text) is not None


def test_every_file_that_is_named_exists():
    folders = "|".join(path.name for path in PACKAGE.iterdir() if path.is_dir() and path.name != "__pycache__")
    missing = defaultdict(set)
    for path in TEXTS:
        for name in re.findall(rf"(?<![\w./])((?:{folders})/[\w/]+\.(?:py|sql))", path.read_text()):
            if not (PACKAGE / name).exists() and not (ROOT / name).exists() and not (ROOT / "tests" / name).exists():
                missing[name].add(path.name)
    assert dict(missing) == {}
