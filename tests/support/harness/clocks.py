"""Wrong clocks for real processes: Python workers and the database server itself."""

import functools
import os
import shutil
import subprocess
from pathlib import Path

from harness import scratch


class ShiftedClock:
    """Give `env` to a process; then `wall(+7200)` and `boot(+30)` move its clocks while it runs."""

    def __init__(self, wall: float = 0.0, boot: float = 0.0) -> None:
        self.folder = scratch.new_folder("clock")
        self.wall(wall)
        self.boot(boot)
        self.env = {
            "LD_PRELOAD": str(library()),
            "CLOCKSHIFT_WALL": str(self.folder / "wall"),
            "CLOCKSHIFT_BOOT": str(self.folder / "boot"),
        }

    def wall(self, seconds: float) -> None:
        """The wall clock is this much ahead (or behind, if negative) of the real one."""
        self._write("wall", seconds)

    def boot(self, seconds: float) -> None:
        """CLOCK_BOOTTIME likewise; raise it to play a machine that was suspended."""
        self._write("boot", seconds)

    def _write(self, name: str, seconds: float) -> None:
        draft = self.folder / f"{name}.new"
        draft.write_text(f"{seconds:.9f}")
        draft.chmod(0o644)
        os.replace(draft, self.folder / name)  # noqa: PTH105 - atomic, as nobody may read half a number


def available() -> bool:
    return shutil.which("gcc") is not None


@functools.cache
def library() -> Path:
    """The shim, compiled once per run."""
    source, made = Path(__file__).with_name("clockshift.c"), scratch.new_folder("shim") / "clockshift.so"
    command = ["gcc", "-O2", "-Wall", "-Wextra", "-shared", "-fPIC", "-o", str(made), str(source)]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"gcc could not compile {source.name}:\n{done.stderr}")
    made.chmod(0o755)
    return made
