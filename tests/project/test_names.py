"""One word, one meaning: no class name is defined twice, no old name is left, and every module that is named exists."""

import ast
import importlib.util
import pkgutil
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

import pytest

import tenure
import tenure.errors
from tenure.core.records import RunKind

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src/tenure"
TEXTS = sorted(
    path
    for pattern in ("src/tenure/**/*.py", "src/tenure/**/*.sql", "docs/**/*.md", "*.md", "pyproject.toml")
    for path in ROOT.glob(pattern)
    if path.name != "renames.md"
)
PROGRAMS = sorted(
    path
    for folder in ("src/tenure", "tests", "sim", "bench", "chaos", "tools")
    for path in (ROOT / folder).rglob("*.py")
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
    r"(?-i:[Ss]omebody|[Nn]obody|[Aa]nybody|[Ww]hoever)": "who it is: a node, an operator, another transaction",
}
RENAMES = ROOT / "docs/internals/renames.md"
"""The table of all renames. It alone may use the old names."""
FUNCTION = (ast.FunctionDef, ast.AsyncFunctionDef)
NOT_MODULES = {"db", "fish"}
"""`tenure.db` and `tenure.fish` are files."""


PINNED = (ROOT / "tests/project/contract_snippets.md").read_text().splitlines()
"""Snippets that the documentation shows as they were agreed on."""


def renames(heading: str) -> dict[str, list[str]]:
    section = re.search(rf"^## {heading}$(.*?)(?:^## |\Z)", RENAMES.read_text(), re.MULTILINE | re.DOTALL)
    rows = re.findall(r"^\| `([^`]+)` \| (.+) \|$", section[1], re.MULTILINE)
    assert rows
    return {old: re.findall(r"`([^`]+)`", now) for old, now in rows}


def classes() -> Iterator[tuple[str, Path]]:
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                yield node.name, path.relative_to(ROOT)


@cache
def identifiers(path: Path) -> frozenset[str]:
    """What a program imports (also by its whole dotted name), defines and mentions."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        match node:
            case ast.ImportFrom(module=str(module)):
                found |= {module} | {f"{module}.{alias.name}" for alias in node.names} | {a.name for a in node.names}
            case ast.Import():
                found |= {alias.name for alias in node.names}
            case ast.ClassDef(name=name) | ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                found.add(name)
            case ast.Name(id=name):
                found.add(name)
    return frozenset(found)


def using(names: Iterable[str], paths: Iterable[Path] = PROGRAMS) -> dict[str, list[str]]:
    wanted = set(names)
    used = {str(path.relative_to(ROOT)): sorted(identifiers(path) & wanted) for path in paths}
    return {path: names for path, names in used.items() if names}


def holding(pattern: str, paths: Iterable[Path]) -> list[str]:
    return [str(path.relative_to(ROOT)) for path in paths if re.search(pattern, path.read_text())]


def test_no_class_name_is_defined_twice():
    places = defaultdict(list)
    for name, path in classes():
        places[name].append(str(path))
    assert {name: paths for name, paths in places.items() if len(paths) > 1} == {}


def test_no_old_module_is_left():
    old = renames("Modules")
    assert [name for name in old if (PACKAGE / name).exists()] == []
    assert using("tenure." + name.removesuffix(".py").replace("/", ".") for name in old) == {}
    gone = {Path(name).stem for name in old} - {path.stem for path in PROGRAMS}
    assert holding(rf"(?<![\w/])(?:{'|'.join(gone)})\.py\b", TEXTS) == []


def test_no_old_class_is_left():
    old = renames("Classes")
    assert using(old, PACKAGE.rglob("*.py")) == {}
    assert holding(rf"`(?:{'|'.join(old)})`", TEXTS) == []


def test_no_old_function_is_left():
    defined = {
        f"{node.name}.{member.name}" if isinstance(node, ast.ClassDef) else node.name
        for path in PACKAGE.rglob("*.py")
        for node in ast.parse(path.read_text()).body
        for member in getattr(node, "body", ())
        if isinstance(node, FUNCTION) or (isinstance(node, ast.ClassDef) and isinstance(member, FUNCTION))
    }
    old = renames("Functions and methods")
    assert set(old) & defined == set()
    assert {now for names in old.values() for now in names} - defined == set()


def test_no_old_public_name_is_left():
    places = {"errors": tenure.errors, "RunKind": RunKind} | {name: getattr(tenure, name) for name in tenure.__all__}
    for old, (now,) in renames("What users type").items():
        for name, there in ((old, False), (now, True)):
            place, attribute = name.split(".")
            for owner in (place, f"Async{place}"):
                assert owner not in places or hasattr(places[owner], attribute) == there, f"{owner}.{attribute}"


@pytest.mark.parametrize("heading", ["Threads and connections", "Log records", "SQL functions"])
def test_no_old_name_is_left_that_an_operator_meets(heading):
    whole = {
        "Threads and connections": r"{name}(?![\w.])",
        "Log records": r"\"action\": \"{name}\"",
        "SQL functions": r"(?:\}}|\btenure)\.{name}\(",
    }[heading]
    sources = [path for path in TEXTS if PACKAGE in path.parents]
    for old, (now,) in renames(heading).items():
        assert holding(whole.format(name=old), {*TEXTS, *PROGRAMS}) == [], f"say {now}"
        assert holding(whole.format(name=now), sources), now


def test_parts_are_called_by_name():
    """Neither by their place in a tuple nor by a text that spells an attribute."""
    calls = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path in [*PACKAGE.glob("cluster/*.py"), *PACKAGE.glob("scheduling/*.py"), PACKAGE / "election.py"]
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call | ast.Subscript)
        and ast.unparse(node).startswith(("getattr(self", "setattr(self", "self._parts[", "self._threads["))
    ]
    assert calls == []


def test_every_new_name_of_the_table_exists():
    assert [path for paths in renames("Modules").values() for path in paths if not (PACKAGE / path).exists()] == []
    defined = {name for name, _ in classes()}
    assert [name for names in renames("Classes").values() for name in names if name not in defined] == []


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


def test_every_path_that_a_program_of_the_repository_names_exists():
    """What `dev.py`, the CI and the tools start and read."""
    programs = [ROOT / "dev.py", ROOT / ".ci/run", *ROOT.glob("tools/*.py")]
    named = {
        (path.name, name)
        for path in programs
        for name in re.findall(r"(?<![\w/.])(?:tests|tools|bench|chaos|sim|docs)/[\w./-]*\w(?![\w{])", path.read_text())
    }
    assert sorted(f"{path}: {name}" for path, name in named if not (ROOT / name).exists()) == []
