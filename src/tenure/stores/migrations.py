"""The versions of tenure's tables: which ones this library can use, and the SQL that leads from one to the next.

The tables carry two numbers: `version`, the newest migration that was applied, and `oldest`, the least version that a
library must know to use them. A library refuses tables that are older than its newest migration (`SchemaOutdated`),
and tables whose `oldest` is newer than that (`SchemaTooNew`). Everything in between is the window in which two releases
share the tables. docs/internals/schema.md explains what a migration may do within the window.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from tenure.errors import SchemaOutdated, SchemaTooNew
from tenure.stores import statements


class Stamp(NamedTuple):
    """What the tables say about themselves."""

    version: int
    oldest: int


class Migrations:
    """The migrations that this library knows for one store."""

    def __init__(self, folder: str, table: str, **replaced: str) -> None:
        self._table = table
        """Of the version."""
        self._steps = {
            int(file.name[:3]): statements.read(file, replaced) for file in statements.scripts(f"{folder}/migrations")
        }
        self.functions = "\n".join(
            statements.read(file, replaced) for file in statements.scripts(f"{folder}/functions")
        )
        """Replaced as a whole with every migration."""

    @property
    def newest(self) -> int:
        return max(self._steps)

    def script(self, since: int = 0) -> str:
        """The SQL that leads from a version to the newest."""
        oldest = max(map(int, re.findall(r"^-- oldest: (\d+)$", "\n".join(self._steps.values()), re.MULTILINE)))
        stamp = f"UPDATE {self._table} SET version = {self.newest}, oldest = {oldest};\n"  # noqa: S608 - our numbers
        return "\n".join([*(text for number, text in self._steps.items() if number > since), self.functions, stamp])

    def serve(self, found: Stamp | None, what: str) -> bool:
        """True if these tables are ready for this library; False if they have to be migrated first.

        Raises `SchemaTooNew` if they were migrated beyond it.
        """
        if found is not None and found.oldest > self.newest:
            raise SchemaTooNew(
                f"{what} has version {found.version} and needs a library that knows version {found.oldest}; "
                f"this one knows {self.newest}. Upgrade tenure here."
            )
        return found is not None and found.version >= self.newest

    def outdated(self, found: Stamp | None, what: str) -> SchemaOutdated:
        """The error for tables that this library may not migrate."""
        state = "missing" if found is None else f"at version {found.version}"
        return SchemaOutdated(f"{what} is {state}, this library needs version {self.newest}. {self.how(found)}")

    @staticmethod
    def how(found: Stamp | None) -> str:
        """What to do about tables that are missing or too old."""
        since = "" if found is None else f" --from {found.version}"
        return f"Run `tenure migrate` as a role that may, or apply what `tenure migrate --print{since}` prints."
