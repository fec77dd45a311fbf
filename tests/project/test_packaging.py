"""What a user installs: the wheel has every file of the package and nothing else."""

import subprocess
import sys
import zipfile
from email import message_from_bytes
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "tenure"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    out = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(out)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    [built] = out.glob("tenure-*.whl")
    with zipfile.ZipFile(built) as opened:
        yield opened


def test_the_wheel_has_the_sql_and_the_type_marker(wheel):
    packed = {name for name in wheel.namelist() if name.startswith("tenure/")}
    source = {
        f"tenure/{path.relative_to(PACKAGE)}"
        for path in PACKAGE.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert "tenure/py.typed" in packed
    assert packed == source


def test_the_page_comes_with_its_files_and_with_the_licence_of_what_is_not_ours(wheel):
    packed = set(wheel.namelist())
    for name in (
        "templates/now.html",
        "static/page.css",
        "static/htmx.min.js",
        "static/hx-sse.min.js",
        "static/vendored.json",
    ):
        assert f"tenure/web/{name}" in packed
    [metadata] = [name for name in packed if name.endswith(".dist-info/METADATA")]
    said = message_from_bytes(wheel.read(metadata))
    assert said["License-Expression"] == "MIT AND 0BSD"
    for file in ("htmx.LICENSE", "uPlot.LICENSE"):
        assert any(name.endswith(file) for name in said.get_all("License-File"))


def test_the_registry_page_says_what_it_is_and_every_requirement_has_a_lower_bound(wheel):
    [metadata] = [name for name in wheel.namelist() if name.endswith(".dist-info/METADATA")]
    said = message_from_bytes(wheel.read(metadata))
    assert said["Description-Content-Type"] == "text/markdown"
    assert said.get_payload().startswith("# tenure")
    assert {f"Programming Language :: Python :: 3.{minor}" for minor in (11, 12, 13)} <= set(said.get_all("Classifier"))
    assert [needed for needed in said.get_all("Requires-Dist") if ">=" not in needed.partition(";")[0]] == []
