"""What a user installs: the wheel has every file of the package and nothing else."""

import subprocess
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "src" / "tenure"


def test_the_wheel_has_the_sql_and_the_type_marker(tmp_path):
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    [wheel] = tmp_path.glob("tenure-*.whl")
    packed = {name for name in zipfile.ZipFile(wheel).namelist() if name.startswith("tenure/")}
    source = {
        f"tenure/{path.relative_to(PACKAGE)}" for path in PACKAGE.rglob("*") if path.suffix in {".py", ".sql", ".typed"}
    }
    assert "tenure/py.typed" in packed
    assert packed == source
