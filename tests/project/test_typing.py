"""What a type checker says to people who use the scheduler: the signatures are kept, and a wrong word is flagged."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent / "typing"
ROOT = Path(__file__).parents[2]


def mypy(file: Path, scratch: Path) -> dict[int, str]:
    """The lines that mypy flags, and what it says."""
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--config-file=", "--no-error-summary", "--hide-error-context",
         "--no-pretty", "--show-error-codes", f"--cache-dir={scratch}", str(file)],
        capture_output=True, text=True, check=False, cwd=scratch, env={"MYPYPATH": str(ROOT / "src")},
    )  # fmt: skip
    assert done.returncode in {0, 1}, done.stderr
    found = {}
    for line in done.stdout.splitlines():
        path, number, kind, said = line.split(":", 3)
        if kind.strip() == "error":
            assert Path(path).resolve() == file, line
            found[int(number)] = said.strip()
    return found


def pyright(file: Path, scratch: Path) -> dict[int, str]:
    """The lines that pyright flags, and what it says. (As the wheel basedpyright, which brings all it needs.)"""
    settings = {"extraPaths": [str(ROOT / "src")], "typeCheckingMode": "strict", "pythonVersion": "3.11"}
    (scratch / "pyrightconfig.json").write_text(json.dumps(settings))
    copy = shutil.copy(file, scratch)
    done = subprocess.run(
        [sys.executable, "-m", "basedpyright", "--outputjson", "--pythonpath", sys.executable, "-p", str(scratch)],
        capture_output=True, text=True, check=False, cwd=scratch,
    )  # fmt: skip
    assert done.returncode in {0, 1}, done.stderr
    report = json.loads(done.stdout)
    assert report["summary"]["filesAnalyzed"] == 1, report
    flagged = [one for one in report["generalDiagnostics"] if one["severity"] == "error"]
    assert {one["file"] for one in flagged} <= {str(copy)}
    return {one["range"]["start"]["line"] + 1: one["message"] for one in flagged}


@pytest.fixture(params=[mypy, pyright])
def checker(request: pytest.FixtureRequest):
    return request.param


@pytest.mark.timeout(180)
def test_signatures_are_kept_and_both_colours_are_known(checker, tmp_path) -> None:
    assert checker(HERE / "right.py", tmp_path) == {}


@pytest.mark.timeout(180)
def test_a_wrong_word_is_flagged(checker, tmp_path) -> None:
    file = HERE / "wrong.py"
    marked = {n for n, line in enumerate(file.read_text().splitlines(), 1) if line.endswith("# wrong")}
    assert len(marked) > 10
    assert set(checker(file, tmp_path)) == marked
